import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;

/** A bare member of a DLedger group: group, own id, peers, folder, bytes of a data file. Runs until it is killed. */
public class DLedgerNode {
    public static void main(String[] arguments) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.group(arguments[0]);
        config.selfId(arguments[1]);
        config.peers(arguments[2]);
        config.setStoreBaseDir(arguments[3]);
        config.setMappedFileSizeForEntryData(Integer.parseInt(arguments[4]));
        config.setMappedFileSizeForEntryIndex(32 * 10_000);
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
        System.out.println("started");
        Thread.currentThread().join();
    }
}
