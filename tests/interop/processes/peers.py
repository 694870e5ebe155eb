"""What the tests need from elsewhere: RocketMQ's jars from Maven Central, the C++ client from the package index,
h2spec from the Go proxy.

Both are put once below MAXQ_PEERS (default ~/.cache/peers, shared with the benches). Without Maven, Java or a network
the tests skip and say what is missing.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

ROCKETMQ_VERSION = "5.5.0"
OLDER_ROCKETMQ_VERSION = "5.3.3"  # for replication, which the golden data were recorded with
CPP_CLIENT_VERSION = "0.4.4"
GRPC_PYTHON_VERSION = "5.1.2"
GRPC_JAVA_VERSION = "5.0.8"
H2SPEC_VERSION = "v2.2.1+incompatible"
FETCH_SECONDS = 300
ARTIFACTS = ("broker", "namesrv", "tools", "client")
MAVEN_DEPENDENCY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
COPY_GOAL = f"{MAVEN_DEPENDENCY}:copy-dependencies"
JAVA_SOURCES = Path(__file__).parent / "java"
GRPC_JAVA_SOURCE = Path(__file__).parent / "java_grpc" / "GrpcDriver.java"


class PeerUnavailableError(Exception):
    """Something this machine lacks; the text says what."""


def peers_folder() -> Path:
    """Where downloads are kept from one run to the next."""
    return Path(os.environ.get("MAXQ_PEERS") or os.environ.get("PEERS") or Path.home() / ".cache" / "peers")


def rocketmq_jars(version: str = ROCKETMQ_VERSION) -> Path:
    """The folder with the jars of Apache RocketMQ's broker, name server, tools and client, and all they need."""
    return _fetched(peers_folder() / f"rmq-{version}", version, ARTIFACTS, "rocketmq-broker-*.jar")


def tools_jars(version: str) -> Path:
    """The folder with the jars of mqadmin alone: of old releases Maven Central has no more."""
    return _fetched(peers_folder() / f"tools-{version}", version, ("tools", "client"), "rocketmq-tools-*.jar")


def _fetched(folder: Path, version: str, artifacts: tuple[str, ...], marker: str) -> Path:
    for tool in ("java", "javac"):
        if not shutil.which(tool):
            raise PeerUnavailableError(f"no {tool} on PATH: install a JDK (17 is what we use)")
    if any(folder.glob(marker)):
        return folder
    if not shutil.which("mvn"):
        raise PeerUnavailableError(f"no mvn on PATH, and no jars in {folder}: install Maven or set MAXQ_PEERS")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Downloaded beside and renamed: two test processes may do it at once, and a broken download leaves nothing.
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_pom(version, artifacts))
        target = Path(scratch) / "jars"
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            COPY_GOAL,
            f"-DoutputDirectory={target}",
            "-DincludeScope=runtime",
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise PeerUnavailableError(f"Maven could not fetch RocketMQ {version}:\n{done.stdout[-2000:]}")
        if not any(folder.glob(marker)):
            shutil.copytree(target, folder, dirs_exist_ok=True)
    return folder


def examples_jar() -> Path:
    """The jar with the examples of Apache RocketMQ's Java client."""
    jar = peers_folder() / "examples" / f"rocketmq-example-{ROCKETMQ_VERSION}.jar"
    if jar.exists():
        return jar
    if not shutil.which("mvn"):
        raise PeerUnavailableError(f"no mvn on PATH, and no {jar}: install Maven or set MAXQ_PEERS")
    artifact = f"-Dartifact=org.apache.rocketmq:rocketmq-example:{ROCKETMQ_VERSION}"
    done = _fetch(["mvn", "-q", "-B", f"{MAVEN_DEPENDENCY}:copy", artifact, f"-DoutputDirectory={jar.parent}"])
    if done.returncode:
        raise PeerUnavailableError(f"Maven could not fetch the examples:\n{done.stdout[-2000:]}")
    return jar


def _fetch(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"{command[0]} got nothing within {FETCH_SECONDS} s: is there a network?") from None


def _pom(version: str, artifacts: tuple[str, ...]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{name}</artifactId>"
        f"<version>{escape(version)}</version></dependency>"
        for name in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>maxq</groupId>'
        "<artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def compiled_drivers(jars: Path) -> Path:
    """Our Java programs in `java/`, compiled against the jars; a folder for each content of the sources, since several
    work trees may use it."""
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    content = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    target = peers_folder() / f"drivers-{ROCKETMQ_VERSION}-{content}"
    marker = target / ".compiled"
    if marker.exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(target), *map(str, sources)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    marker.touch()
    return target


def h2spec() -> Path:
    """The conformance test of HTTP/2, built by Go."""
    program = peers_folder() / f"h2spec-{H2SPEC_VERSION.partition('+')[0]}" / "h2spec"
    if program.exists():
        return program
    if not shutil.which("go"):
        raise PeerUnavailableError(f"no go on PATH, and no {program}: install Go, which builds h2spec")
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            ["go", "install", f"github.com/summerwind/h2spec/cmd/h2spec@{H2SPEC_VERSION}"],
            env=dict(os.environ, GOBIN=scratch),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_SECONDS,
        )
        if done.returncode:
            raise PeerUnavailableError(f"Go could not build h2spec:\n{done.stdout[-2000:]}")
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(scratch) / "h2spec", program)
    return program


def cpp_client() -> Path:
    """A folder that holds the package `rocketmq`: ctypes over the C++ client it bundles."""
    if sys.platform != "linux":
        raise PeerUnavailableError("the wheel with the C++ client is for Linux on x86-64")
    target = peers_folder() / f"cpp-{CPP_CLIENT_VERSION}"
    if (target / "rocketmq" / "librocketmq.so").exists():
        return target
    command = [
        *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"),
        *("--target", str(target), f"rocketmq=={CPP_CLIENT_VERSION}"),
    ]
    done = _fetch(command)
    if done.returncode:
        raise PeerUnavailableError(f"pip could not fetch rocketmq {CPP_CLIENT_VERSION}:\n{done.stdout[-2000:]}")
    return target


def grpc_python_client() -> Path:
    """A Python with RocketMQ's official client of 5.x, in an environment of its own."""
    folder = peers_folder() / f"grpc-python-{GRPC_PYTHON_VERSION}"
    python, marker = folder / "bin" / "python", folder / ".installed"
    if marker.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    package = f"rocketmq-python-client=={GRPC_PYTHON_VERSION}"
    done = _fetch([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", package])
    if done.returncode:
        raise PeerUnavailableError(f"pip could not fetch {package}:\n{done.stdout[-2000:]}")
    marker.touch()
    return python


def grpc_java_client() -> Path:
    """The folder with the jars of RocketMQ's official Java client of 5.x, and our program on it, GrpcDriver."""
    folder = peers_folder() / f"grpc-java-{GRPC_JAVA_VERSION}"
    _fetched(folder, GRPC_JAVA_VERSION, ("client-java",), "rocketmq-client-java-*.jar")
    compiled = folder / "GrpcDriver.class"
    content = hashlib.sha256(GRPC_JAVA_SOURCE.read_bytes()).hexdigest()
    marker = folder / ".compiled"
    if not compiled.exists() or not marker.exists() or marker.read_text() != content:
        command = ["javac", "-nowarn", "-cp", f"{folder}/*", "-d", str(folder), str(GRPC_JAVA_SOURCE)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        marker.write_text(content)
    return folder
