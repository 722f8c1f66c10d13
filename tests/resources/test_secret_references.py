"""References to files and commands: what they return, what is refused, what a command gets, and that nothing is shown."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

import pytest

from kpipe.definition.references import from_statement, mentions_reference, rotates, to_statement
from kpipe.definition.yaml_codec import resolve
from kpipe.errors import CredentialUnavailable, InvalidPipeline, KpipeError
from resources import secret_references
from resources.destinations.credentials import Rotating, rotating
from resources.secret_references import MOST_BYTES, passes, secret
from tests.cases import each_case

CANARY = "canary-51aa"


def program(folder: Path, text: str, name: str = "program") -> Path:
    file = folder / name
    file.write_text(f"#!{sys.executable}\n{text}")
    file.chmod(0o755)
    return file


def command(file: Path, more: str = "") -> str:
    return f"{{{{ command('{file}{more}') }}}}"


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "password"
    template = f"{{{{ file('{file}') }}}}"
    for content, expected in (
        (b"one\n", "one"),
        (b"two\r\n", "two"),
        (b" {{ env('X') }} \n", " {{ env('X') }} "),
        (b"a\nb", "a\nb"),
    ):
        file.write_bytes(content)
        assert secret(template, {}) == expected
    assert secret(f"user-{{{{ env('A') }}}}-{template}", {"A": "x"}) == "user-x-a\nb"


def test_a_secret_of_kubernetes_is_followed_when_its_link_is_replaced(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "password").write_text(version)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "password").symlink_to("..data/password")
    template = f"{{{{ file('{tmp_path}/password') }}}}"
    assert secret(template) == "v1"
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert secret(template) == "v2"


def test_a_command_gets_its_arguments_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    file = program(tmp_path, "import os, sys; print(sys.argv[1:], sys.stdin.read(), sorted(os.environ)); print()\n")
    told = secret(command(file, ' one "two three" $HOME ;x'), {})
    assert told.startswith("['one', 'two three', '$HOME', ';x']") and not told.endswith("\n")
    assert "'AWS_REGION'" in told and "KAFKA_PASSWORD" not in told and "SECRET" not in told
    assert passes("HOME") and passes("https_proxy") and not passes("VAULT_TOKEN") and not passes("PGPASSWORD")


@each_case(
    ("text", "kind", "what"),
    [
        (f"import sys; print('{CANARY}'); sys.stderr.write('{CANARY}'); sys.exit(3)", CredentialUnavailable, "found 3"),
        (f"import os; print('{CANARY}', flush=True); os.kill(os.getpid(), 9)", CredentialUnavailable, "found -9"),
        ("import time; time.sleep(3600)", CredentialUnavailable, "did not end within 0.5 s"),
        ("import os, time\nos.close(1)\ntime.sleep(3600)", CredentialUnavailable, "did not end within 0.5 s"),
        (f"while True: print('{CANARY}')", InvalidPipeline, "bytes of output, found more"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", InvalidPipeline, "expected UTF-8"),
        ("print('a\\0b')", InvalidPipeline, "NUL"),
    ],
)
def test_commands_that_fail(text: str, kind: type[KpipeError], what: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secret_references, "SECONDS", 0.5 if "sleep" in text else 600)
        with pytest.raises(kind, match=what) as error:
            secret(command(program(tmp_path_factory.mktemp("x"), text)), {})
    assert CANARY not in "".join(traceback.format_exception(error.value)).split("\nkpipe.errors")[-1]
    assert error.value.retriable == (kind is CredentialUnavailable)


def test_what_a_command_started_ends_with_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    text = (
        "import os, subprocess, sys\n"
        "made = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], stdout=subprocess.DEVNULL)\n"
        f"open({str(child)!r}, 'w').write(str(made.pid))\nprint('x')\n"
    )
    assert secret(command(program(tmp_path, text)), {}) == "x"
    deadline = time.monotonic() + 300
    while _runs(child.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_files_and_programs_that_are_refused(tmp_path: Path) -> None:
    plain, loose, large = tmp_path / "plain", tmp_path / "loose", tmp_path / "large"
    plain.write_text(CANARY)
    loose.write_text(CANARY)
    loose.chmod(0o666)
    large.write_bytes(b"x" * (MOST_BYTES + 1))
    writable = program(tmp_path, "print(1)", "writable")
    writable.chmod(0o777)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for template, what in (
        ("{{ file('relative') }}", "absolute path"), ("{{ command('ls -l') }}", "absolute path"), ("{{ command('') }}", "empty"),
        ("{{ command('/bin/ls \"a') }}", "quotation mark"), (f"{{{{ file('{tmp_path}/none') }}}}", "does not exist"),
        (f"{{{{ file('{tmp_path}') }}}}", "folder"), (f"{{{{ file('{loose}') }}}}", "every user"),
        (f"{{{{ file('{large}') }}}}", "at most 65,536 bytes"), (f"{{{{ file('{fifo}') }}}}", "regular file"),
        (command(writable), "every user"), (command(plain), "not executable"), (command(tmp_path / "none"), "does not exist"),
        ("{{ secret('/x') }}", "unknown template"),
    ):  # fmt: skip
        with pytest.raises(InvalidPipeline, match=what) as error:
            secret(template, {})
        assert CANARY not in str(error.value)


def test_a_check_reads_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    file = program(tmp_path, f"open({str(ran)!r}, 'w')")
    assert secret(command(file), {}, read=False) == "x" == secret("{{ file('/none/at/all') }}", {}, read=False)
    assert not ran.exists()
    with pytest.raises(InvalidPipeline, match="absolute path"):
        secret("{{ file('relative') }}", {}, read=False)


def test_other_fields_than_credentials_have_variables_only() -> None:
    with pytest.raises(InvalidPipeline, match=r"file\(\) is for credentials only"):
        resolve("{{ file('/etc/passwd') }}", {})
    with pytest.raises(InvalidPipeline, match=r"command\(\) is for credentials only"):
        resolve("x{{ command('/bin/id') }}", {})


@each_case(
    ("statement", "definition"),
    [
        ("${file:/run/secrets/kafka}", "{{ file('/run/secrets/kafka') }}"),
        ('${command:/bin/get "a b" -c}', "{{ command('/bin/get \"a b\" -c') }}"),
        ("${env:A}-${file:/a}", "{{ env('A') }}-{{ file('/a') }}"),
    ],
)
def test_references_of_statements_and_of_definitions(statement: str, definition: str) -> None:
    assert from_statement(statement) == definition and to_statement(definition) == statement
    assert mentions_reference(definition) and rotates([definition]) and not rotates(["{{ env('A') }}", "x"])


def test_credentials_of_a_destination_are_read_when_they_are_used(tmp_path: Path) -> None:
    file = tmp_path / "password"
    found = rotating({"password": f"{{{{ file('{file}') }}}}"}, ("password",))
    assert isinstance(found, Rotating) and len(found) == 1
    file.write_text("one")
    assert dict(found) == {"password": "one"}
    file.write_text("two\n")
    assert dict(found) == {"password": "two"} and "two" not in repr(dict(found)) + repr(found)
    file.write_text("\n")
    with pytest.raises(InvalidPipeline, match=r"into\.credentials: password is empty"):
        dict(found)
    with pytest.raises(InvalidPipeline, match="is not a credential"):
        rotating({"word": f"{{{{ file('{file}') }}}}"}, ("password",))
    assert rotating({"password": "x"}, ("password",)) == {"password": "x"}


def test_a_missing_file_gets_a_hint_about_its_absolute_path() -> None:
    with pytest.raises(InvalidPipeline) as error:
        secret("{{ file('/nonexistent') }}", {})
    assert error.value.hint == "check the path"
