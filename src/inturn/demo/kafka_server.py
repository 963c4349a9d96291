"""Kafka on this machine: one node on loopback, from Maven Central, with its data in a folder."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from inturn.demo.free_ports import free_port

VERSION: Final = "4.1.0"
CACHE: Final = Path("~/.cache/inturn").expanduser()
PLAIN: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAIN://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""
_OPTIONS: Final = ("-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>inturn</groupId><artifactId>fetched</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{more}</dependency>
</dependencies></project>"""
_START_S: Final = 60
_FETCH_S: Final = 600


class KafkaServer:
    """One node of Kafka, which can be killed and started again over its data.

    Args:
        folder: folder of its data, its log and its configuration.
        jars: the folder with its libraries, as :func:`fetch` returns it.
        settings: its configuration, with the names of ports in braces.
        ports: a free port for each of these names.
    """

    def __init__(
        self, folder: Path, jars: Path, settings: str = PLAIN, ports: tuple[str, ...] = ("plain", "controller")
    ) -> None:
        self.ports = {name: free_port() for name in ports}
        self.servers = f"127.0.0.1:{self.ports['plain']}"
        self._java = ("java", *_OPTIONS, "-cp", f"{jars}/*")
        self._config, self._log = folder / "server.properties", folder / "log"
        self._config.write_text(settings.format(**self.ports, data=folder / "data"), encoding="utf-8")
        format_ = ("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._config))
        subprocess.run([*self._java, *format_], check=True, capture_output=True, timeout=_START_S)
        self.start()

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def start(self) -> None:
        """Start the node, and wait until it answers."""
        with self._log.open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until_ready(self.servers)

    def kill(self) -> None:
        """End the node at once, like a power failure."""
        self._process.kill()
        self._process.wait(_START_S)


def wait_until_ready(servers: str) -> str:
    """Wait until a broker answers; return its address.

    Raises:
        TimeoutError: if it does not within a minute.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    until = time.monotonic() + _START_S
    while True:
        try:
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=5)
        except KafkaException as error:
            if time.monotonic() > until:
                raise TimeoutError(f"no broker answers at {servers}: {error.args[0].str()}") from error
        else:
            return servers


def missing() -> str:
    """Return the missing requirements for fetching and starting Kafka; empty: none."""
    lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return f"Kafka needs {' and '.join(lacking)} on the PATH" if lacking else ""


def fetch(folder: Path, **artifact: Any) -> str:
    """Fetch an artifact with its dependencies from Maven, once; return the reason for a failure, or an empty text.

    Args:
        folder: folder of the artifact; the libraries are in its folder ``jars``.
        artifact: ``group``, ``artifact``, ``version`` and ``more`` of its dependency; default: Kafka.
    """
    if reason := missing():
        return reason
    if (folder / "complete").exists():
        return ""
    kafka = {"group": "org.apache.kafka", "artifact": "kafka_2.13", "version": VERSION, "more": ""}
    coordinates = kafka | artifact
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM.format(**coordinates), encoding="utf-8")
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_FETCH_S)
    except subprocess.TimeoutExpired:
        return f"Maven did not fetch {coordinates['artifact']} within {_FETCH_S} s"
    if done.returncode != 0:
        return f"Maven cannot fetch {coordinates['artifact']}: {done.stdout[-500:]}"
    (folder / "complete").touch()
    return ""
