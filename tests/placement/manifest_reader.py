"""Manifests as a cluster reads them: the YAML that `flodl manifests` prints, and its pods.

`read_manifests` understands blocks of mappings and lists with JSON for every value, and
nothing else. `Pod` does what a kubelet does with a pod of theirs: variables from secrets,
volumes from secrets as files, `$(NAME)` replaced in the command.
"""

import json
import re
from pathlib import Path
from typing import Any

Tree = Any


def read_manifests(text: str) -> dict[str, Tree]:
    """Return the documents by kind and name, such as `Job/night-host`."""
    documents = [_block(part.splitlines(), 0)[0] for part in text.split("---\n")]
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents}


class Pod:
    """One pod of a Job.

    Args:
        documents: all manifests.
        job: its key.
        name: of the pod.
        mounts: directory that stands for the root of the pod's file system.
    """

    def __init__(self, documents: dict[str, Tree], job: str, *, name: str, mounts: Path) -> None:
        self._spec = documents[job]["spec"]["template"]["spec"]
        (self._container,) = self._spec["containers"]
        self.env: dict[str, str] = {}
        for variable in self._container["env"]:
            source = variable["valueFrom"]
            if "secretKeyRef" in source:
                secret = documents[f"Secret/{source['secretKeyRef']['name']}"]
                self.env[variable["name"]] = secret["stringData"][source["secretKeyRef"]["key"]]
            else:
                assert source == {"fieldRef": {"fieldPath": "metadata.name"}}
                self.env[variable["name"]] = name
        self._roots: dict[str, str] = {}
        volumes = {volume["name"]: volume for volume in self._spec["volumes"]}
        for mount in self._container["volumeMounts"]:
            there = mounts / mount["mountPath"].strip("/")
            if mount["mountPath"] == "/dev/shm":
                continue
            there.mkdir(parents=True)
            self._roots[mount["mountPath"]] = str(there)
            secret_name = volumes[mount["name"]].get("secret", {}).get("secretName")
            if secret_name is not None:
                for key, value in documents[f"Secret/{secret_name}"]["stringData"].items():
                    (there / key).write_text(value)

    def command(self) -> list[str]:
        """Return its words, as they are once paths lie below the pod's root."""
        return [self._placed(self._expanded(word)) for word in self._container["command"]]

    def _expanded(self, word: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[0] == "$$":
                return "$"
            return self.env.get(found[1], found[0])

        return re.sub(r"\$\$|\$\((\w+)\)", value, word)

    def _placed(self, word: str) -> str:
        for root, there in sorted(self._roots.items(), reverse=True):
            if word == root or word.startswith(f"{root}/"):
                return there + word[len(root) :]
        return word


def _block(lines: list[str], at: int) -> tuple[Tree, int]:
    """Return the value that begins at a line, and the line behind it."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    if not lines[at].lstrip().startswith(("- ", "-\n")):
        return _mapping(lines, at, indent)
    items = []
    while at < len(lines) and lines[at].startswith(" " * indent + "- "):
        inner = lines[at][indent + 2 :]
        if re.match(r'^("[^"]*"|[\w./-]+):( |$)', inner) and not _is_value(inner):
            lines[at] = " " * (indent + 2) + inner
            item, at = _mapping(lines, at, indent + 2)
        else:
            item, at = json.loads(inner), at + 1
        items.append(item)
    return items, at


def _mapping(lines: list[str], at: int, indent: int) -> tuple[Tree, int]:
    found = {}
    while at < len(lines) and re.match(rf"^ {{{indent}}}[^ -]", lines[at]):
        key, _, rest = re.match(r'^("[^"]*"|[\w./-]+):( ?)(.*)$', lines[at].strip()).groups()  # type: ignore[union-attr]
        name = json.loads(key) if key.startswith('"') else key
        if rest:
            found[name], at = json.loads(rest), at + 1
        else:
            found[name], at = _block(lines, at + 1)
    return found, at


def _is_value(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
