"""Names that are made to be taken for others: what a connection is remembered to be allowed counts for exactly that."""

from pathlib import Path

from maxq.auth.signature import SIGNATURE, signed_content
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from tests.integration.access.test_strangers import HER_TOPIC, MALLORY, OWNER, SECRET, World, guarded_world


def _binary(command: RemotingCommand, access_key: str = MALLORY.access_key) -> RemotingCommand:
    """In the binary form, which can hold any byte, and signed by Mallory under whatever name."""
    command.serialize_type = SerializeType.ROCKETMQ
    command.ext["AccessKey"] = access_key
    command.ext[SIGNATURE] = MALLORY.signing_key().sign(signed_content(command.ext), command.body_bytes).decode()
    return command


async def test_a_prefix_does_not_reach_over_the_end_of_a_name(tmp_path: Path) -> None:
    """Access key and topic are two texts, wherever one puts the zero byte that may stand between them."""
    world: World = await guarded_world(tmp_path, "ACL 2.0", {})
    try:
        entry = f'{{"resource":"Topic:{HER_TOPIC}*","actions":["Pub"],"decision":"Allow"}}'
        body = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'
        assert (await world.broker.ask(3006, OWNER, body.encode(), subject="User:mallory1")).code == 0
        await world.send(SECRET, b"of its owner")
        send = world.broker.send_request
        await world.broker.invoke(_binary(send(f"{HER_TOPIC}\0{SECRET}", b"x", UNIQ_KEY="U0")))
        forged = _binary(send(SECRET, b"forged", UNIQ_KEY="U1"), f"{MALLORY.access_key}\0{HER_TOPIC}")
        answer = await world.broker.invoke(forged)
        assert (answer.code, world.end(SECRET)) == (16, 1)
    finally:
        await world.broker.stop()
