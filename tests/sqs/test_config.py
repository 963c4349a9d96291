"""The TOML file: what it says is what there is, and what it gets wrong is said so that it can be mended."""

import re
from pathlib import Path

import pytest

from inturn.core.errors import InputError
from inturn.serving.http.limits import CONNECTIONS
from inturn.sqs import limits
from inturn.sqs.config import (
    AccessKey,
    Config,
    LimitsConfig,
    QueueConfig,
    ServerConfig,
    check_exposure,
    is_loopback,
    load,
    with_options,
)


def written(folder: Path, text: str) -> Path:
    path = folder / "inturn.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        load(written(folder, text), {})
    return str(caught.value).removeprefix(f"{folder / 'inturn.toml'}: ")


def test_an_empty_config_file_gives_the_defaults(tmp_path: Path) -> None:
    config = load(written(tmp_path, ""))
    assert (config.server, config.limits, config.keys, config.queues) == (ServerConfig(), LimitsConfig(), (), ())
    assert (config.server.host, config.server.port, config.server.account) == ("127.0.0.1", 9324, "000000000000")
    assert config.limits.connections == CONNECTIONS


def test_a_config_file_with_every_setting_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    text = """
    [server]
    host = "0.0.0.0"
    port = 443
    region = "eu-central-1"
    regions = "joined"
    check_region = true
    account = "123456789012"
    base_url = "https://queues.example.org/sqs"
    tls_cert = "cert.pem"
    tls_key = "/etc/key.pem"
    replays = "refuse"
    metrics = "all"
    log_json = true
    grace_s = 3

    [limits]
    connections = 10
    idle_s = 1.5
    request_s = 2
    unread_s = 3

    [[keys]]
    id = "a"
    secret = "plain"
    admin = true

    [[keys]]
    id = "b"
    secret_env = "B_SECRET"
    queues = ["orders-*", "x"]
    actions = ["Send*", "sqs:GetQueueUrl"]

    [[keys]]
    id = "c"
    secret_file = "secret"
    account = "111122223333"

    [[queues]]
    name = "dead.fifo"
    attributes = { FifoQueue = true }
    region = "eu-central-1"
    account = "111122223333"

    [[queues]]
    name = "orders.fifo"
    tags = { team = "shop" }
    [queues.attributes]
    FifoQueue = "true"
    VisibilityTimeout = 60
    [queues.attributes.RedrivePolicy]
    deadLetterTargetArn = "arn:dead.fifo"
    maxReceiveCount = 3
    """
    config = load(written(tmp_path, text), {"B_SECRET": "from the environment"})
    assert config.server == ServerConfig(
        host="0.0.0.0",  # noqa: S104
        port=443,
        region="eu-central-1",
        regions="joined",
        check_region=True,
        account="123456789012",
        base_url="https://queues.example.org/sqs",
        tls_cert=str(tmp_path / "cert.pem"),
        tls_key="/etc/key.pem",
        replays="refuse",
        metrics="all",
        log_json=True,
        grace_s=3,
    )
    assert config.limits == LimitsConfig(connections=10, idle_s=1.5, request_s=2, unread_s=3)
    assert config.keys == (
        AccessKey(id="a", secret="plain", admin=True),  # noqa: S106
        AccessKey(
            id="b",
            secret="from the environment",  # noqa: S106
            queues=("orders-*", "x"),
            actions=("Send*", "sqs:GetQueueUrl"),
        ),
        AccessKey(id="c", secret="from a file", account="111122223333"),  # noqa: S106
    )
    assert config.queues[0] == QueueConfig(
        name="dead.fifo", attributes={"FifoQueue": True}, region="eu-central-1", account="111122223333"
    )
    assert config.scope_of(config.queues[0]) == ("eu-central-1", "111122223333")
    assert config.scope_of(config.queues[1]) == ("eu-central-1", "123456789012")
    assert config.queues[1].tags == {"team": "shop"}
    assert config.queues[1].api_attributes() == {
        "FifoQueue": "true",
        "VisibilityTimeout": "60",
        "RedrivePolicy": '{"deadLetterTargetArn":"arn:dead.fifo","maxReceiveCount":3}',
    }
    assert config.queues[0].api_attributes() == {"FifoQueue": "true"}
    assert "plain" not in repr(config)
    assert "from" not in repr(config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server", "not valid TOML: Expected ']'"),
        (
            "\n[sever]\nport = 1",
            "line 2: unknown setting 'sever'; did you mean 'server'? Known settings: server, limits, keys, queues",
        ),
        (
            "[server]\n\nprot = 1",
            "line 3, [server]: unknown setting 'prot'; did you mean 'port'? Known settings: ",
        ),
        (
            "[server]\nport = '1'",
            "line 2, [server]: port is '1'; expected a port from 0 to 65535 (0: any free port)",
        ),
        ("[server]\nport = 65536", "line 2, [server]: port is 65536; expected a port from 0 to 65535"),
        ("[server]\nport = true", "port is true; expected a port"),
        ("[server]\nhost = ''", "host is ''; expected an address"),
        ("[server]\naccount = '12'", "account is '12'; expected 12 digits in quotes"),
        ("[server]\naccount = 123456789012", "account is 123456789012; expected 12 digits in quotes"),
        ("[server]\nregion = 'EU'", "region is 'EU'; expected a region"),
        ("[server]\nregions = 'one'", 'regions is \'one\'; expected "joined" or "separate"'),
        ("[[keys]]\nid = 'a'\nsecret = 'b'\naccount = '1'", "account is '1'; expected 12 digits in quotes"),
        ("[[queues]]\nname = 'q'\nregion = 'EU'", "region is 'EU'; expected a region"),
        (
            "[server]\nregions = 'joined'\n[[queues]]\nname = 'q'\nregion = 'eu-west-1'",
            "queue 'q' is in region 'eu-west-1', which no request can reach with regions = \"joined\"; remove",
        ),
        (
            "[server]\ncheck_region = true\n[[queues]]\nname = 'q'\nregion = 'eu-west-1'",
            "queue 'q' is in region 'eu-west-1', which no request can reach with check_region = true; remove",
        ),
        (
            "[[queues]]\nname = 'q'\n[[queues]]\nname = 'q'\nregion = 'us-east-1'",
            "two [[queues]] have the name 'q'; remove one",
        ),
        (
            "[server]\nbase_url = 'http://host/queue/eu-west-1/'",
            "base_url is 'http://host/queue/eu-west-1/', whose end would be read as a region",
        ),
        ("[server]\nreplays = 'never'", 'replays is \'never\'; expected "accept" or "refuse"'),
        ("[server]\nmetrics = true", 'metrics is true; expected "all", "local" or "off"'),
        ("[server]\ntls_key = 'k'", "line 2, [server]: tls_key is set and tls_cert is not; set both"),
        (
            "[server]\nbase_url = 'queues.example.org'",
            "base_url is 'queues.example.org'; expected an http or https URL",
        ),
        ("[server]\nbase_url = 'http://[a'", "base_url is 'http://[a'; expected an http or https URL"),
        ("[server]\ngrace_s = 0", "grace_s is 0; expected a number of seconds above 0, at most 86400"),
        ("server = 1", "line 1: server is 1; expected a table"),
        ("[keys]\nid = 'a'", "line 1: keys is a table; expected [[keys]] tables"),
        ("[limits]\nconnections = 0", "line 2, [limits]: connections is 0; expected a whole number from 1 to 1000000"),
        (
            "[limits]\npending_bytes = 1000000",
            "pending_bytes is 1000000; expected a number of bytes from 16777216 to 1099511627776",
        ),
        ("[limits]\nidle_s = 'long'", "[limits]: idle_s is 'long'; expected a number of seconds"),
        ("[[keys]]\nsecret = 's'", "line 1, [[keys]] number 1: the setting 'id' is missing"),
        (
            "[[keys]]\nid = 'a'",
            "line 1, [[keys]] number 1: no secret is set; set one of secret, secret_env and",
        ),
        ("[[keys]]\nid = 'a'\nsecret = 's'\nsecret_env = 'E'", "secret and secret_env are set; set only one of"),
        ("[[keys]]\nid = 'a'\nsecret = ''", "secret is empty"),
        (
            "[[keys]]\nid = 'a'\nsecret = 5",
            "line 3, [[keys]] number 1: secret is of the wrong type; expected a string in quotes",
        ),
        ("[[keys]]\nid = 'a/b'\nsecret = 's'", "id is 'a/b'; expected 1 to 128 letters"),
        (
            "[[keys]]\nid = 'a'\nsecret_env = 'E'",
            "line 3, [[keys]] number 1: secret_env is 'E', an environment variable that is not set or is empty",
        ),
        (
            "[[keys]]\nid = 'a'\nsecret = 's'\n[[keys]]\nid = 'b'\nsecret = 's'\nqueues = 'orders'",
            "line 7, [[keys]] number 2: queues is 'orders'; expected a list of strings",
        ),
        (
            "[[keys]]\nid = 'a'\nsecret = 's'\nqueues = [1]",
            "line 4, [[keys]] number 1: queues is [1]; expected a list",
        ),
        (
            "[[keys]]\nid = 'a'\nsecret = 's'\nactions = ['SendMesage']",
            "unknown action 'SendMesage'; did you mean 'SendMessage'?",
        ),
        (
            "[[keys]]\nid = 'a'\nsecret = 's'\n[[keys]]\nid = 'a'\nsecret = 's'",
            "two [[keys]] have the name 'a'; remove one",
        ),
        ("[[queues]]\nname = 'q'\n[[queues]]\nname = 'q'", "two [[queues]] have the name 'q'; remove one"),
        (
            "[[queues]]\nname = 'q'\nDelaySeconds = 5",
            "line 3, [[queues]] number 1: unknown setting 'DelaySeconds'; known settings: name,",
        ),
        (
            "[[queues]]\nname = 'q'\n[queues.attributes]\nDelaySeconds = 1.5",
            "attribute DelaySeconds is 1.5; expected a string, an integer",
        ),
        (
            "[[queues]]\nname = 'q'\ntags = { a = 1 }",
            "line 3, [[queues]] number 1, [queues.tags]: a is 1; expected a string in quotes",
        ),
    ],
)
def test_invalid_settings_are_reported(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


def test_config_errors_contain_no_secret(tmp_path: Path) -> None:
    for wrong in ("queues = 1", "seccret = 'x'", "secret_env = 'hunter2'", "actions = ['nothing']"):
        assert "hunter2" not in refused(tmp_path, f"[[keys]]\nid = 'a'\nsecret = 'hunter2'\n{wrong}")
    assert "hunter2" not in refused(tmp_path, "[[keys]]\nid = 'a'\nsecret = ['hunter2']")


def test_a_missing_or_empty_secret_file_is_reported(tmp_path: Path) -> None:
    assert "absent: No such file" in refused(tmp_path, "[[keys]]\nid = 'a'\nsecret_file = 'absent'")
    (tmp_path / "empty").write_text(" \n")
    assert "line 3, [[keys]] number 1: secret_file is 'empty', a file that is empty; expected the secret" in refused(
        tmp_path, "[[keys]]\nid = 'a'\nsecret_file = 'empty'"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LocalHost"])
def test_without_keys_loopback_addresses_are_allowed(host: str) -> None:
    assert is_loopback(host)
    check_exposure(Config(server=ServerConfig(host=host)))


@pytest.mark.parametrize("host", ["10.0.0.1", "::", "example.org", "127.0.0.1.example.org", "::ffff:10.0.0.1"])
def test_without_keys_other_addresses_are_refused(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InputError, match=r"Add \[\[keys\]\] with an id and a secret to the configuration"):
        check_exposure(Config(server=ServerConfig(host=host)))
    check_exposure(Config(server=ServerConfig(host=host), keys=(AccessKey(id="a", secret="s"),)))  # noqa: S106


def test_the_config_files_in_the_documentation_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    text, console, webhooks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert load(written(tmp_path, console)).console is not None
    (tmp_path / "mailer.secret").write_text("s")
    config = load(written(tmp_path, text + webhooks), {"SHOP_SECRET": "s", "OPS_SECRET": "s", "STRIPE_SECRETS": "s"})
    assert [(webhook.name, webhook.secrets) for webhook in config.webhooks] == [("billing", ("s",))]
    assert (len(config.keys), len(config.queues), config.limits.connections) == (3, 2, 500)
    assert [key.id for key in config.keys if key.admin] == ["ops"]
    server = ServerConfig()
    for setting in (
        "127.0.0.1, 9324",
        'us-east-1, "000000000000"',
        '"accept"',
        '"local"',
        "10",
        'none, "info", false, false',
        "1000",
        "75, 60, 30",
    ):
        assert f"| {setting} |" in page
    assert (server.host, server.port, server.region, server.account) == ("127.0.0.1", 9324, "us-east-1", "0" * 12)
    assert (server.replays, server.metrics, server.grace_s) == ("accept", "local", 10)
    assert (server.health, server.log_level, server.log_json, server.telemetry) == (None, "info", False, False)
    assert config.limits == LimitsConfig(connections=500, idle_s=75, request_s=60, unread_s=30)
    assert LimitsConfig().connections == 1000
    assert limits.REPLAYS == 250_000


def test_queues_of_one_name_in_other_regions_and_accounts_are_distinct(tmp_path: Path) -> None:
    text = """
    [[queues]]
    name = "q"
    [[queues]]
    name = "q"
    region = "eu-west-1"
    [[queues]]
    name = "q"
    account = "111122223333"
    """
    config = load(written(tmp_path, text))
    assert len({config.scope_of(queue) for queue in config.queues}) == 3


def test_a_setting_that_conflicts_with_an_option_is_reported() -> None:
    config = Config(queues=(QueueConfig(name="q", region="eu-west-1"),))
    with pytest.raises(InputError, match="region 'eu-west-1', which no request can reach with check_region = true"):
        with_options(config, {"check_region": True})
