"""The manifests: as Kubernetes has them, in step with each other and with the server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from utterwire_server.app import METRICS, PING
from utterwire_server.cli import _flags
from utterwire_server.engines import ToneEngine
from utterwire_server.service import LEAVING_S, Service
from utterwire_server.settings import Settings

ROOT = Path(__file__).parents[3] / "deploy" / "kubernetes"
BASE = ROOT / "base"
KUBERNETES = "1.34"


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


KUSTOMIZATION = read(BASE / "kustomization.yaml")
MANIFESTS = {read(BASE / name)["kind"]: read(BASE / name) for name in KUSTOMIZATION["resources"]}
POD = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENVIRONMENT = {one["name"]: one["value"] for one in CONTAINER["env"]}


def test_each_file_is_used() -> None:
    there = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == there


@pytest.mark.parametrize("kind", MANIFESTS)
def test_kubernetes_takes_it(kind: str) -> None:
    kubernetes_validate.validate(MANIFESTS[kind], KUBERNETES, strict=True)


def test_no_service_sets_variables_that_the_server_reads() -> None:
    assert POD["enableServiceLinks"] is False


def test_kubernetes_would_not_take_a_word_of_ours() -> None:
    wrong = {**MANIFESTS["Service"], "spec": {**MANIFESTS["Service"]["spec"], "ours": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_the_overlay_changes_what_is_there() -> None:
    folder = ROOT / "overlays" / "gpu"
    overlay = read(folder / "kustomization.yaml")
    assert [(folder / each).resolve() for each in overlay["resources"]] == [BASE.resolve()]
    (patch,) = (read(folder / each["path"]) for each in overlay["patches"])
    assert (patch["kind"], patch["metadata"]) == (
        "Deployment",
        MANIFESTS["Deployment"]["metadata"],
    )
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["name"] == CONTAINER["name"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    # Merged by hand as Kustomize merges: containers by name.
    merged = dict(CONTAINER)
    merged["resources"] = {
        each: {**CONTAINER["resources"][each], **container["resources"][each]}
        for each in ("requests", "limits")
    }
    deployment = {
        **MANIFESTS["Deployment"],
        "spec": {
            **MANIFESTS["Deployment"]["spec"],
            "template": {
                **MANIFESTS["Deployment"]["spec"]["template"],
                "spec": {**POD, "containers": [merged]},
            },
        },
    }
    kubernetes_validate.validate(deployment, KUBERNETES, strict=True)


def test_all_speak_of_the_same_pods() -> None:
    spec = MANIFESTS["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    (spread,) = POD["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels
    target = MANIFESTS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (
        "Deployment",
        MANIFESTS["Deployment"]["metadata"]["name"],
    )
    assert [one["name"] for one in KUSTOMIZATION["images"]] == [CONTAINER["image"]]


def test_probes_ask_what_the_server_answers() -> None:
    assert CONTAINER["startupProbe"]["httpGet"]["path"] == PING
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == PING
    annotations = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == METRICS
    # While it drains, /ping answers 503: that must not be taken for death.
    assert "httpGet" not in CONTAINER["livenessProbe"]


def test_the_grace_period_covers_the_drain() -> None:
    stop = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = float(ENVIRONMENT["UTTERWIRE_SHUTDOWN_TIMEOUT"])
    assert POD["terminationGracePeriodSeconds"] >= stop + drain + LEAVING_S


def test_variables_are_flags_of_the_server() -> None:
    flags = {f"UTTERWIRE_{name.upper().replace('-', '_')}" for name, *_ in _flags()}
    assert set(ENVIRONMENT) <= flags
    assert ENVIRONMENT["UTTERWIRE_THREADS"] == CONTAINER["resources"]["requests"]["cpu"]


async def test_the_autoscaler_looks_at_figures_of_the_server() -> None:
    metrics = Service(Settings(), ToneEngine()).metrics
    assert metrics is not None
    there = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    rules = read(ROOT / "prometheus-adapter.yaml")["rules"]["custom"]
    series = [re.match(r"\w+", rule["seriesQuery"]) for rule in rules]
    names = [found[0] for found in series if found is not None]
    assert set(names) <= there
    made = {rule.get("name", {}).get("as", name) for rule, name in zip(rules, names, strict=True)}
    looked_at = {
        one["pods"]["metric"]["name"]
        for one in MANIFESTS["HorizontalPodAutoscaler"]["spec"]["metrics"]
    }
    assert looked_at == made


def test_work_that_waits_brings_help_before_it_is_refused() -> None:
    targets = {
        one["pods"]["metric"]["name"]: one["pods"]["target"]["averageValue"]
        for one in MANIFESTS["HorizontalPodAutoscaler"]["spec"]["metrics"]
    }
    assert float(targets["utterwire_queued_seconds"]) < Settings().max_queued_work_s / 2


def test_the_page_names_the_version() -> None:
    assert f"Kubernetes {KUBERNETES}," in (ROOT / "README.md").read_text(encoding="utf-8")
