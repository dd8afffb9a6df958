"""A run as manifests: what a cluster is told, and that it says the same as the settings."""

import json

import pytest
from manifest_reader import read_manifests

from flodl_core.config.keys import KEYS
from flodl_core.placement.kubernetes import ClusterRun, manifests
from flodl_core.placement.yaml_text import yaml_text

TOKEN = "00112233445566778899aabbccddeeff"

GOLDEN = """\
apiVersion: "v1"
kind: "Service"
metadata:
  name: "night"
  namespace: "lab"
  labels:
    app.kubernetes.io/name: "flodl"
    flodl: "night"
spec:
  clusterIP: "None"
  publishNotReadyAddresses: true
  selector:
    flodl: "night"
    flodl-part: "launcher"
  ports:
    - name: "flodl"
      port: 1337
"""


def run(**given):
    facts = {
        "name": "night",
        "namespace": "lab",
        "image": "registry/flodl:1",
        "token": TOKEN,
        "port": 1337,
        "hosts": 3,
        "gpus": 2,
        "claim": "runs",
        "launcher_words": ("charlm", "--ranks", "2"),
        "host_words": ("--job", "charlm"),
    }
    return ClusterRun(**{**facts, **given})


def by_name(**given):
    return {one["metadata"]["name"] + one["kind"]: one for one in manifests(run(**given))}


def pod(job):
    return job["spec"]["template"]["spec"]


def test_the_service_is_as_it_was():
    assert yaml_text(by_name()["nightService"]) == GOLDEN


def test_the_token_is_in_the_secret_and_nowhere_else():
    found = by_name()
    assert found["nightSecret"]["stringData"] == {"token": TOKEN}
    rest = [one for name, one in found.items() if name != "nightSecret"]
    assert TOKEN not in json.dumps(rest)
    for job in (found["night-launcherJob"], found["night-hostJob"]):
        (container,) = pod(job)["containers"]
        source = container["env"][0]
        assert source["name"] == KEYS["agent.token"].env == KEYS["join.token"].env
        assert source["valueFrom"]["secretKeyRef"] == {"name": "night", "key": "token"}


def test_the_certificate_is_in_a_secret_that_only_the_launcher_mounts():
    found = by_name(identity="PEM")
    assert found["night-identitySecret"]["stringData"] == {"identity.pem": "PEM"}
    launcher, hosts = pod(found["night-launcherJob"]), pod(found["night-hostJob"])
    (volume,) = [one for one in launcher["volumes"] if "secret" in one]
    assert volume["secret"] == {"secretName": "night-identity"}
    (mount,) = [
        one for one in launcher["containers"][0]["volumeMounts"] if one["name"] == volume["name"]
    ]
    said = launcher["containers"][0]["command"]
    assert "--tls" in said
    assert said[said.index("--tls-identity") + 1] == f"{mount['mountPath']}/identity.pem"
    assert mount["readOnly"] is True
    assert "identity" not in json.dumps(hosts)
    assert "night-identitySecret" not in by_name()
    assert "--tls" not in pod(by_name()["night-launcherJob"])["containers"][0]["command"]


def test_pods_get_no_variables_of_services_and_no_rights_in_the_cluster():
    for name in ("night-launcherJob", "night-hostJob"):
        assert pod(by_name()[name])["enableServiceLinks"] is False
        assert pod(by_name()[name])["automountServiceAccountToken"] is False


def test_a_word_with_a_dollar_is_the_same_word_in_the_pod():
    words = ("charlm", "--on-event", "echo $(FLODL_TOKEN) $$ $HOME")
    command = pod(by_name(launcher_words=words)["night-launcherJob"])["containers"][0]["command"]
    assert "echo $$(FLODL_TOKEN) $$$$ $$HOME" in command


def test_the_printed_text_reads_back_as_what_it_was_made_from():
    trees = manifests(run(identity="-----BEGIN\nLINES\n", claim=None))
    text = "---\n".join(map(yaml_text, trees))
    read = read_manifests(text)
    assert read == {f"{one['kind']}/{one['metadata']['name']}": one for one in trees}


def test_hosts_dial_the_service_that_selects_the_launcher():
    found = by_name()
    launcher, hosts = found["night-launcherJob"], found["night-hostJob"]
    (container,) = pod(hosts)["containers"]
    assert container["command"][:5] == ["flodl", "join", "night:1337", "--host", "$(POD_NAME)"]
    labels = launcher["spec"]["template"]["metadata"]["labels"]
    assert found["nightService"]["spec"]["selector"] == labels
    assert labels != hosts["spec"]["template"]["metadata"]["labels"]
    said = pod(launcher)["containers"][0]["command"]
    assert said[:2] == ["flodl", "headless"]
    assert said[said.index("--advertise") + 1] == "night"


class HostJob:
    """The hosts' Job as its controller sees it: what becomes of each index when a pod ends."""

    def __init__(self, spec):
        self.spec = spec
        self.failed_pods = dict.fromkeys(range(spec["completions"]), 0)
        self.failed_indexes = set()
        self.has_failed = False

    def ended(self, index, code, *conditions):
        """One pod of an index ends; return whether another is started in its place."""
        action = next(filter(None, (self._fits(rule, code, conditions) for rule in self.rules)), "")
        assert action != "FailJob", "one host ends the others"
        if action != "Ignore":
            self.failed_pods[index] += 1
        if action == "FailIndex" or self.failed_pods[index] > self.spec["backoffLimitPerIndex"]:
            self.failed_indexes.add(index)
        assert "backoffLimit" not in self.spec, "pods of all hosts are counted together"
        self.has_failed = len(self.failed_indexes) > self.spec["maxFailedIndexes"]
        return index not in self.failed_indexes

    @property
    def rules(self):
        return self.spec["podFailurePolicy"]["rules"]

    def _fits(self, rule, code, conditions):
        if "onExitCodes" in rule:
            assert rule["onExitCodes"]["operator"] == "In"
            return rule["action"] if code in rule["onExitCodes"]["values"] else ""
        wanted = {(one["type"], one["status"]) for one in rule["onPodConditions"]}
        return rule["action"] if wanted & {(one, "True") for one in conditions} else ""


def host_job():
    return HostJob(by_name(hosts=5)["night-hostJob"]["spec"])


def test_the_launcher_is_one_pod_and_each_further_host_an_index():
    hosts = by_name()["night-hostJob"]["spec"]
    assert (hosts["completions"], hosts["parallelism"]) == (2, 2)
    assert hosts["completionMode"] == "Indexed"
    assert pod(by_name()["night-hostJob"])["restartPolicy"] == "Never"
    assert by_name()["night-launcherJob"]["spec"]["backoffLimit"] == 0


@pytest.mark.parametrize("code", [2, 3, 7])
def test_a_host_that_was_refused_or_lost_its_run_ends_and_no_other_does(code):
    job = host_job()
    assert not job.ended(0, code)
    assert (job.failed_indexes, job.has_failed) == ({0}, False)


def test_a_pod_that_a_drained_node_takes_along_is_replaced_and_not_counted():
    job = host_job()
    for _ in range(100):
        assert job.ended(1, 7, "DisruptionTarget")
    assert (job.failed_indexes, job.has_failed) == (set(), False)


def test_late_knocks_of_a_host_that_was_killed_cost_only_that_host():
    job = host_job()
    assert job.ended(2, 137)
    tries = 1
    while job.ended(2, 6):
        tries += 1
    assert tries >= 10, "the launcher may not be there yet"
    assert (job.failed_indexes, job.has_failed) == ({2}, False)


def test_hosts_that_all_end_end_their_job_by_themselves():
    job = host_job()
    assert not any(job.ended(index, 7) for index in range(4))
    assert job.failed_indexes == {0, 1, 2, 3}


def test_a_launcher_that_trains_alone_listens_inside_its_pod_only():
    found = by_name(hosts=1, is_alone=True)
    assert set(found) == {"nightSecret", "night-launcherJob"}
    said = pod(found["night-launcherJob"])["containers"][0]["command"]
    assert "--bind" not in said
    assert "--advertise" not in said


def test_gpus_and_the_volume_are_asked_for_where_they_are_given():
    launcher = pod(by_name()["night-launcherJob"])
    assert launcher["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert launcher["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
    bare = pod(by_name(gpus=0, claim=None)["night-launcherJob"])
    assert "resources" not in bare["containers"][0]
    assert bare["volumes"][0] == {"name": "runs", "emptyDir": {}}


def test_one_host_needs_no_second_job_and_no_namespace_leaves_it_to_kubectl():
    found = by_name(hosts=1, namespace=None)
    assert set(found) == {"nightSecret", "nightService", "night-launcherJob"}
    assert "namespace" not in found["nightService"]["metadata"]


def test_yaml_quotes_what_it_would_take_for_something_else():
    text = yaml_text({"a": "no", "1": 1, "b": [], "c": {}, "d": [{"e": "x: y", "f": [True]}]})
    assert text == ('a: "no"\n"1": 1\nb: []\nc: {}\nd:\n  - e: "x: y"\n    f:\n      - true\n')
