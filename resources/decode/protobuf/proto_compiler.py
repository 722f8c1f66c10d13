"""Compile .proto texts to descriptors with Google's compiler (grpcio-tools), in a separate process.

A registry returns Protobuf schemas as text, which is untrusted input. So the compiler runs in an empty folder, in a process
without environment variables, for 20 s at most.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from resources.decode.payload_schemas import Unfit
from resources.extras import missing

__all__ = ["compiled"]

# A compiler that hangs delays a batch: a schema of thousands of messages takes less than one second.
_LONGEST_S = 20.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_ROOT = "kpipe.schema.proto"
_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from grpc_tools import _protoc_compiler as c; " \
       "sys.exit(c.run_main([item.encode() for item in sys.argv]))"  # fmt: skip

#: Files that Confluent's registry includes without a reference (Apache License 2.0, github.com/confluentinc/schema-registry).
KNOWN = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}


def compiled(text: str, others: Mapping[str, str]) -> tuple[bytes, str]:
    """Compile a file and its imports to a FileDescriptorSet; return its bytes, and the file's name in it.

    Args:
        text: of the file.
        others: texts of imported files by name.

    Raises:
        Unfit: it cannot be compiled.
        NotAvailable: the compiler is not installed.
    """
    found = importlib.util.find_spec("grpc_tools")
    if found is None or found.origin is None:
        error = missing("a Protobuf schema that is text", "grpcio-tools", "protobuf")
        error.hint += ", or give a descriptor set: protoc --include_imports -o FILE"
        raise error
    tools = Path(found.origin).parent
    with tempfile.TemporaryDirectory(prefix="kpipe-proto-") as name:
        folder = Path(name)
        for other, content in {**KNOWN, **others, _ROOT: text}.items():
            if not _NAME.fullmatch(other) or len(other) > 255:
                raise Unfit(f"import {other[:80]!r}: expected the name of a .proto file")
            try:
                (folder / "in" / other).parent.mkdir(parents=True, exist_ok=True)
                (folder / "in" / other).write_text(content, encoding="utf-8")
            except (OSError, UnicodeEncodeError) as error:
                raise Unfit(f"import {other[:80]!r} cannot be written as a file: {type(error).__name__}") from None
        out = folder / "out"
        arguments = [f"-I{folder / 'in'}", f"-I{tools / '_proto'}", "--include_imports", f"--descriptor_set_out={out}", _ROOT]
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", _RUN, str(tools.parent), *arguments],
                cwd=folder,
                env={},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unfit(f"the schema could not be compiled within {_LONGEST_S:g} s") from None
        if done.returncode or not out.exists():
            lines = done.stderr.decode("utf-8", "replace").replace(f"{folder / 'in'}/", "").splitlines()
            said = [line for line in lines if ".proto:" in line and "warning:" not in line] or lines
            why = said[0].replace(_ROOT, "the schema") if said else f"the compiler ended with exit code {done.returncode}"
            raise Unfit(f"the schema cannot be compiled: {why[:300]}")
        return out.read_bytes(), _ROOT
