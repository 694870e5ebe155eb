// mqadmin of any release, many commands in one JVM: a line of standard input is `milliseconds TAB argument TAB …`, the
// answer a line `@@` and what the command printed, in Base64. A command that is not done in time is interrupted.
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

public class MqAdmin {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setSecurityManager(new StaysAlive());
        answers.println("@@");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            byte[] said = run(Arrays.copyOfRange(parts, 1, parts.length), Long.parseLong(parts[0]));
            answers.println("@@" + Base64.getEncoder().encodeToString(said));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Old releases end the JVM at a wrong option. */
    static final class StaysAlive extends SecurityManager {
        @Override
        public void checkPermission(java.security.Permission permission) {
        }

        @Override
        public void checkExit(int status) {
            throw new SecurityException("it would have ended with " + status);
        }
    }

    static byte[] run(String[] args, long millis) throws Exception {
        forgetCommands();
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(said, true, "UTF-8");
        System.setOut(stream);
        System.setErr(stream);
        Thread thread = new Thread(() -> MQAdminStartup.main0(args, null));
        thread.start();
        thread.join(millis);
        if (thread.isAlive()) {
            thread.interrupt();
            thread.join(5000);
        }
        return said.toByteArray();
    }

    /** main0 adds all commands to a list that nobody empties. */
    static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
