"""The networks: the same functions as published, their states and their sizes; checkpoints, good and bad."""

import copy
import importlib.util
import json
import math
import os
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mlcpc.config import InputError
from mlcpc.models import MODELS, build, canonical, counts, load_published

PARITY = Path(__file__).parents[2] / "shared" / "parity"
State = dict[str, Tensor]

#: parameters and millions of multiply-accumulates; 100 classes and 32×32 unless said
SIZES: dict[str, tuple[int, float]] = {
    "wrn_40_2": (2_255_156, 327.6),
    "wrn_16_2": (703_284, 101.1),
    "wrn_40_1": (569_780, 83.3),
    "resnet20": (278_324, 40.8),
    "resnet32": (472_756, 69.1),
    "resnet56": (861_620, 125.8),
    "resnet110": (1_736_564, 253.2),
    "resnet8x4": (1_233_540, 177.1),
    "resnet32x4": (7_433_860, 1083),
    "vgg8": (3_965_028, 96.2),
    "vgg13": (9_462_180, 284.9),
    "ResNet50": (23_705_252, 1298),
    "MobileNetV2": (812_836, 6.5),
    "ShuffleV1": (949_258, 38.7),
    "ShuffleV2": (1_355_528, 44.5),
    "cifar_resnet18": (11_173_962, 555.4),  # 10 classes
    "cifar_resnet50": (23_520_842, 1297.8),  # 10 classes
    "imagenet_resnet18": (11_689_512, 1814),  # 1000 classes, 224×224
    "imagenet_resnet50": (25_557_032, 4089),  # 1000 classes, 224×224
}
SMALL = ("resnet8", "wrn_16_1", "vgg8", "MobileNetV2", "ShuffleV1", "ShuffleV2", "imagenet_resnet18")  # of each kind


def filled(net: nn.Module) -> State:
    """A state in which every number matters: no norm is the identity."""
    drawn: State = {}
    for key, value in net.state_dict().items():
        if key.endswith("num_batches_tracked"):
            drawn[key] = value
        elif value.ndim > 1:
            drawn[key] = torch.randn(value.shape, dtype=torch.float64) * math.sqrt(2 / value[0].numel())
        elif key.endswith(("running_var", "weight")):
            drawn[key] = torch.rand(value.shape, dtype=torch.float64) + 0.5
        else:
            drawn[key] = torch.randn(value.shape, dtype=torch.float64) * 0.1
    return drawn


# Slow twins: features from a published state alone, written over its keys.


class Twin:
    """A state, with the two operations that all networks are made of."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __contains__(self, key: str) -> bool:
        return f"{key}.weight" in self.state

    def conv(self, key: str, x: Tensor, stride: int = 1) -> Tensor:
        """The number of groups follows from the shape."""
        weight = self.state[f"{key}.weight"]
        groups = x.shape[1] // weight.shape[1]
        return F.conv2d(x, weight, self.state.get(f"{key}.bias"), stride, weight.shape[2] // 2, groups=groups)

    def bn(self, key: str, x: Tensor) -> Tensor:
        mean, var, weight, bias = (
            self.state[f"{key}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    def cb(self, i: int | str, prefix: str, x: Tensor, stride: int = 1) -> Tensor:
        return self.bn(f"{prefix}bn{i}", self.conv(f"{prefix}conv{i}", x, stride))


def resnet_twin(t: Twin, x: Tensor) -> Tensor:
    large = t.state["conv1.weight"].shape[2] == 7
    x = t.cb(1, "", x, 2 if large else 1).relu()
    x = F.max_pool2d(x, 3, 2, 1) if large else x
    for stage in range(1, 5):
        block = 0
        while f"layer{stage}.{block}.conv1" in t:
            at, stride = f"layer{stage}.{block}.", 2 if stage > 1 and block == 0 else 1
            if f"{at}conv3" in t:
                y = t.cb(3, at, t.cb(2, at, t.cb(1, at, x).relu(), stride).relu())
            else:
                y = t.cb(2, at, t.cb(1, at, x, stride).relu())
            for beside in (f"{at}shortcut", f"{at}downsample"):
                if f"{beside}.0" in t:
                    x = t.bn(f"{beside}.1", t.conv(f"{beside}.0", x, stride))
            x = (x + y).relu()
            block += 1
    return x.mean((2, 3))


def wrn_twin(t: Twin, x: Tensor) -> Tensor:
    x = t.conv("conv1", x)
    for stage in (1, 2, 3):
        block = 0
        while f"block{stage}.layer.{block}.conv1" in t:
            at, stride = f"block{stage}.layer.{block}", 2 if stage > 1 and block == 0 else 1
            a = t.bn(f"{at}.bn1", x).relu()
            y = t.conv(f"{at}.conv2", t.bn(f"{at}.bn2", t.conv(f"{at}.conv1", a, stride)).relu())
            x = y + (t.conv(f"{at}.convShortcut", a, stride) if f"{at}.convShortcut" in t else x)
            block += 1
    return t.bn("bn1", x).relu().mean((2, 3))


def vgg_twin(t: Twin, x: Tensor) -> Tensor:
    for block in range(5):
        place = 0
        while f"block{block}.{place}" in t:  # convolution, norm, ReLU without a key
            x = t.bn(f"block{block}.{place + 1}", t.conv(f"block{block}.{place}", x)).relu()
            place += 3
        x = F.max_pool2d(x, 2) if block < 3 else x
    return x.mean((2, 3))


def mobile_twin(t: Twin, x: Tensor) -> Tensor:
    x = t.bn("conv1.1", t.conv("conv1.0", x, 2)).relu()
    for stage, first in enumerate((1, 1, 2, 2, 1, 2, 1)):
        block = 0
        while f"blocks.{stage}.{block}.conv.0" in t:
            at, stride = f"blocks.{stage}.{block}.conv", first if block == 0 else 1
            y = t.bn(f"{at}.1", t.conv(f"{at}.0", x)).relu()
            y = t.bn(f"{at}.4", t.conv(f"{at}.3", y, stride)).relu()
            y = t.bn(f"{at}.7", t.conv(f"{at}.6", y))
            x = x + y if x.shape == y.shape else y
            block += 1
    return t.bn("conv2.1", t.conv("conv2.0", x)).relu().mean((2, 3))


def shuffled(x: Tensor, groups: int) -> Tensor:
    """The first channel of every group, then the second of every group, …"""
    width = x.shape[1] // groups
    return x[:, [group * width + i for i in range(width) for group in range(groups)]]


def shuffle1_twin(t: Twin, x: Tensor) -> Tensor:
    x = t.cb(1, "", x).relu()
    for stage, depth in ((1, 4), (2, 8), (3, 4)):
        for block in range(depth):
            at, down = f"layer{stage}.{block}.", block == 0
            groups = 1 if stage == 1 and down else 3
            y = shuffled(t.cb(1, at, x).relu(), groups)
            y = t.cb(3, at, t.cb(2, at, y, 2 if down else 1).relu())
            x = torch.cat([y, F.avg_pool2d(x, 3, 2, 1)], 1).relu() if down else (x + y).relu()
    return x.mean((2, 3))


def shuffle2_twin(t: Twin, x: Tensor) -> Tensor:
    x = t.cb(1, "", x).relu()
    for stage, depth in ((1, 3), (2, 7), (3, 3)):
        at = f"layer{stage}.0."
        left = t.cb(2, at, t.cb(1, at, x, 2)).relu()
        right = t.cb(5, at, t.cb(4, at, t.cb(3, at, x).relu(), 2)).relu()
        x = shuffled(torch.cat([left, right], 1), 2)
        for block in range(1, depth + 1):
            at, half = f"layer{stage}.{block}.", x.shape[1] // 2
            y = t.cb(3, at, t.cb(2, at, t.cb(1, at, x[:, half:]).relu())).relu()
            x = shuffled(torch.cat([x[:, :half], y], 1), 2)
    return t.cb(2, "", x).relu().mean((2, 3))


TWINS: dict[str, Callable[[Twin, Tensor], Tensor]] = {
    "wrn": wrn_twin,
    "vgg": vgg_twin,
    "MobileNetV2": mobile_twin,
    "ShuffleV1": shuffle1_twin,
    "ShuffleV2": shuffle2_twin,
    "": resnet_twin,
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_its_twin(name: str) -> None:
    """Features by the twin, logits by the last two entries of the state, both to 1e-10 of the largest."""
    net = build(name, 7).double().eval()
    state = filled(net)
    net.load_state_dict(state)
    x = torch.randn(1, 3, 64 if name.startswith("imagenet") else 32, 64 if name.startswith("imagenet") else 32).double()
    with torch.no_grad():
        twin = next(twin for kind, twin in TWINS.items() if name.startswith(kind))(Twin(state), x)
        weight, bias = list(state.values())[-2:]
        features, logits = net.both(x)
        torch.testing.assert_close(features, twin, rtol=0, atol=1e-10 * twin.abs().max().item())
        torch.testing.assert_close(logits, twin @ weight.T + bias, rtol=0, atol=1e-10 * logits.abs().max().item())
    assert features.shape == (1, net.num_features)


@pytest.mark.parametrize("name", SMALL)
def test_gradients_equal_the_twins(name: str) -> None:
    """In-place ReLUs and shuffles give the gradients of the plain formula."""
    net = build(name, 7).double().eval()
    state = filled(net)
    net.load_state_dict(state)
    state = {key: value.requires_grad_(value.is_floating_point()) for key, value in state.items()}
    x = torch.randn(2, 3, 32, 32).double()
    twin = next(twin for kind, twin in TWINS.items() if name.startswith(kind))(Twin(state), x)
    twin.square().mean().backward()
    net.features(x).square().mean().backward()
    for key, parameter in net.named_parameters():
        expected = state[key].grad
        if expected is None:
            assert parameter.grad is None
            assert net.head_name in key
        else:
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-8, atol=1e-10 * expected.abs().max().item())


def parity() -> dict[str, Any]:
    path = PARITY / "networks.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


@pytest.mark.skipif(not PARITY.is_dir(), reason="the published answers (../shared/parity) are not beside this clone")
@pytest.mark.parametrize("name", parity() or ["none"])
def test_gives_the_published_answers(name: str) -> None:
    spec = importlib.util.spec_from_file_location("fill", PARITY / "fill.py")
    assert spec is not None
    assert spec.loader is not None
    fill = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fill)
    case = parity()[name]
    net = build(name, case["classes"]).double().eval()
    net.load_state_dict(fill.filled(case["shapes"]))
    assert sum(p.numel() for p in net.parameters()) == case["parameters"]
    assert net.num_features == case["feature_dim"]
    with torch.no_grad():
        features, logits = net.both(fill.probe())
    for answer, key in ((logits, "logits"), (features, "feature")):
        for part, expected in ((answer[:, :10], case[key]), (answer.sum(1), case[f"{key}_sum"])):
            expected = torch.tensor(expected, dtype=torch.float64)
            torch.testing.assert_close(part, expected, rtol=0, atol=1e-10 * expected.abs().max().item())


@pytest.mark.parametrize("name", SIZES)
def test_has_the_published_size(name: str) -> None:
    kind = name.split("_")[0]
    classes, size = {"cifar": (10, 32), "imagenet": (1000, 224)}.get(kind, (100, 32))
    net = build(name, classes)
    parameters, accumulates = counts(net, size)
    expected, millions = SIZES[name]
    assert parameters == expected
    assert accumulates / 1e6 == pytest.approx(millions, abs=0.5 if millions > 1000 else 0.05)
    if classes == 1000:
        assert accumulates == pytest.approx(millions * 1e6, rel=2e-4)


def test_counting_leaves_the_network_alone() -> None:
    net = build("resnet8")
    before = {key: value.clone() for key, value in net.state_dict().items()}
    counts(net)
    assert net.training
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())


def three_stages(depth: int, stem: int, base: int) -> set[str]:
    convolutions = {"conv1"} | {
        f"layer{stage}.{block}.conv{i}" for stage in (1, 2, 3) for block in range((depth - 2) // 6) for i in (1, 2)
    }
    projections = {f"layer{stage}.0.downsample" for stage in (1, 2, 3) if stage > 1 or stem != base}
    return convolutions | {key.replace("conv", "bn") for key in convolutions} | projected(projections) | {"fc"}


def wide(depth: int, widen: int) -> set[str]:
    inside = {f"block{stage}.layer.{block}." for stage in (1, 2, 3) for block in range((depth - 4) // 6)}
    shortcuts = {f"block{stage}.layer.0.convShortcut" for stage in (1, 2, 3) if stage > 1 or widen > 1}
    layers = {at + layer for at in inside for layer in ("bn1", "conv1", "bn2", "conv2")}
    return layers | shortcuts | {"conv1", "bn1", "fc"}


def plain(depths: str) -> set[str]:
    places = {(block, 3 * i + j) for block, depth in enumerate(depths) for i in range(int(depth)) for j in (0, 1)}
    return {f"block{block}.{place}" for block, place in places} | {"classifier"}


def shuffle2() -> set[str]:
    inside = {(f"layer{s}.{b}.", 3 if b else 5) for s, depth in ((1, 3), (2, 7), (3, 3)) for b in range(depth + 1)}
    layers = {f"{at}{kind}{i}" for at, last in inside for i in range(1, last + 1) for kind in ("conv", "bn")}
    return layers | {"conv1", "bn1", "conv2", "bn2", "linear"}


def four_stages(depths: str, convolutions: int, projection: str) -> set[str]:
    inside = {f"layer{s}.{b}." for s, depth in enumerate(depths, 1) for b in range(int(depth))}
    layers = {f"{at}{kind}{i}" for at in inside for i in range(1, convolutions + 1) for kind in ("conv", "bn")}
    first = 2 if convolutions == 2 else 1  # a bottleneck's first stage widens too
    return layers | projected({f"layer{s}.0.{projection}" for s in range(first, 5)}) | {"conv1", "bn1", "fc"}


def projected(keys: set[str]) -> set[str]:
    return {f"{key}.{i}" for key in keys for i in (0, 1)}


LAYERS = {
    "resnet14": three_stages(14, 16, 16),
    "resnet32": three_stages(32, 16, 16),
    "resnet44": three_stages(44, 16, 16),
    "resnet110": three_stages(110, 16, 16),
    "resnet8x4": three_stages(8, 32, 64),
    "resnet32x4": three_stages(32, 32, 64),
    "wrn_16_1": wide(16, 1),
    "wrn_40_1": wide(40, 1),
    "wrn_40_2": wide(40, 2),
    "vgg11": plain("11222"),
    "vgg13": plain("22222"),
    "vgg16": plain("22333"),
    "vgg19": plain("22444"),
    "ShuffleV2": shuffle2(),
    "cifar_resnet50": four_stages("3463", 3, "shortcut"),
    "imagenet_resnet18": four_stages("2222", 2, "downsample"),
    "imagenet_resnet50": four_stages("3463", 3, "downsample"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_state_has_the_published_names(name: str) -> None:
    """And none of them twice: buffers belong to norms, biases to norms, linear layers and VGG's convolutions."""
    with torch.device("meta"):
        state = build(name).state_dict()
    assert {key.rpartition(".")[0] for key in state} == LAYERS[name]
    for layer in LAYERS[name]:
        norm = f"{layer}.running_mean" in state
        linear_or_vgg = state[f"{layer}.weight"].ndim == 2 or name.startswith("vgg")
        assert (f"{layer}.bias" in state) == (norm or linear_or_vgg)
        assert state[f"{layer}.weight"].ndim == 1 or not norm


def test_no_two_networks_have_the_same_state() -> None:
    with torch.device("meta"):
        states = {
            tuple(sorted((key, value.shape) for key, value in build(name).state_dict().items())) for name in MODELS
        }
    assert len(states) == len(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter(name: str) -> None:
    size = 64 if name.startswith("imagenet") else 32
    net = build(name, 10)
    logits = net(torch.randn(2, 3, size, size))
    F.cross_entropy(logits, torch.tensor([3, 5])).backward()
    assert logits.shape == (2, 10)
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        undone = name.startswith("vgg") and key.endswith("bias") and f"{key[:-4]}weight" in key
        assert undone or parameter.grad.any(), key


def test_he_normal_start() -> None:
    """Var w = 2 / fan out; where the published networks start the last layer at 0.01, so do these."""
    net = build("wrn_40_2")
    weight = net.get_parameter("block3.layer.1.conv1.weight")
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 128)), rel=0.02)
    assert not net.get_parameter("fc.bias").any()
    for name in ("vgg8", "MobileNetV2"):
        head = next(build(name).head.parameters())
        assert head.std().item() == pytest.approx(0.01, rel=0.03)


def test_names_are_taken_as_people_write_them() -> None:
    for spelling, name in {
        "WRN-40-2": "wrn_40_2",
        "ResNet8x4": "resnet8x4",
        "resnet32×4": "resnet32x4",
        "resnet50": "ResNet50",
        "VGG-13": "vgg13",
        "ShuffleNetV1": "ShuffleV1",
        "shufflenet_v2": "ShuffleV2",
        "mobilenet-v2": "MobileNetV2",
        "mobile_half": "MobileNetV2",
        "resnet18_cifar": "cifar_resnet18",
        "CIFAR-ResNet-50": "cifar_resnet50",
        "resnet50_imagenet": "imagenet_resnet50",
    }.items():
        assert canonical(spelling) == name
    assert all(canonical(name) == name for name in MODELS)


def test_unknown_names_and_numbers_of_classes() -> None:
    with pytest.raises(InputError, match=r"no network 'wrn_40_3': did you mean wrn_40_\d"):
        build("wrn_40_3")
    with pytest.raises(InputError, match=r"no network 'resnet18': did you mean cifar_resnet18, imagenet_resnet18"):
        build("resnet18")
    with pytest.raises(InputError, match=r"no network 'zzz': there are resnet8, "):
        build("zzz")
    with pytest.raises(InputError, match="num_classes is 0"):
        build("resnet8", 0)


@pytest.mark.parametrize("name", SMALL)
def test_bf16_autocast_and_channels_last(name: str) -> None:
    """With running statistics: with a batch's own, a network without training multiplies every rounding."""
    net = build(name, 10).to(memory_format=torch.channels_last)
    x = torch.randn(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn_like(x))
    plain = copy.deepcopy(net).to(memory_format=torch.contiguous_format).eval()
    exact = plain.features(x.contiguous())
    torch.testing.assert_close(net.eval().features(x), exact, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        features, logits = net.both(x)
    assert logits.dtype == torch.bfloat16
    assert (features - exact).norm() < 0.05 * exact.norm()  # 0.002 to 0.02 measured
    logits.float().logsumexp(1).mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("name", ["resnet8", "vgg8", "MobileNetV2", "ShuffleV1"])
def test_replace_head(name: str) -> None:
    net = build(name).eval()
    net.replace_head(nn.Sequential(nn.Linear(net.num_features, 5), nn.ReLU()))
    x = torch.randn(2, 3, 32, 32)
    assert net(x).shape == (2, 5)
    assert torch.equal(net(x), net.head(net.features(x)))


def save(path: Path, content: Any, **how: Any) -> Path:
    torch.save(content, path, **how)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_published_checkpoints_load(tmp_path: Path, name: str) -> None:
    net = build(name, 7)
    path = save(tmp_path / "ckpt_epoch_240.pth", {"model": net.state_dict(), "epoch": 240, "accuracy": torch.ones(())})
    loaded = load_published(name, path, num_classes=7)
    assert not loaded.training
    ours = loaded.state_dict()
    assert all(torch.equal(ours[key], value) for key, value in net.state_dict().items())


def test_other_shapes_of_a_checkpoint(tmp_path: Path) -> None:
    """The format before PyTorch 1.6, a bare state, DataParallel's prefix, states without counters, other precisions."""
    net = build("resnet8")
    state = net.state_dict()
    for i, content in enumerate(
        (
            state,
            {"state_dict": OrderedDict((f"module.{key}", value) for key, value in state.items())},
            {"model": {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}},
            {"model": state, "optimizer": torch.optim.SGD(net.parameters(), 0.1).state_dict()},
        )
    ):
        for new in (True, False):
            path = save(tmp_path / f"{i}{new}.pth", content, _use_new_zipfile_serialization=new)
            assert torch.equal(load_published("resnet8", path).get_parameter("fc.weight"), state["fc.weight"])
    for dtype, kept in ((torch.float64, torch.float64), (torch.float16, torch.float32)):
        path = save(tmp_path / "x.pth", {"model": build("resnet8").to(dtype).state_dict()})
        assert {p.dtype for p in load_published("resnet8", path).parameters()} == {kept}


class Hostile:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder / "was-run"),)


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """What is wrong -> the file, and what its message says."""
    folder = tmp_path_factory.mktemp("bad")
    state = build("resnet8").state_dict()
    text, empty, cut = folder / "text.pth", folder / "empty.pth", folder / "cut.pth"
    text.write_text("no checkpoint\n")
    empty.write_bytes(b"")
    whole = save(folder / "whole.pth", {"model": state}).read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    pickled = folder / "pickled.pth"
    pickled.write_bytes(pickle.dumps({"model": Hostile(folder)}))
    lacking = {key: value for key, value in state.items() if key != "bn1.bias"}
    wrong = state | {"conv1.weight": torch.zeros(16, 1, 3, 3)}
    return {
        "missing": (folder / "none.pth", "there is no file .*none.pth"),
        "folder": (folder, "there is no file"),
        "text": (text, "is not a checkpoint"),
        "empty": (empty, "is not a checkpoint"),
        "cut": (cut, "is not a checkpoint"),
        "hostile": (
            save(folder / "h.pth", {"model": Hostile(folder)}),
            "holds a (posix|nt).mkdir beside .*might run code",
        ),
        "pickled": (pickled, "is not a checkpoint"),
        "module": (save(folder / "m.pth", {"model": nn.Linear(1, 1)}), "holds a torch.nn.modules.linear.Linear"),
        "list": (save(folder / "l.pth", [1, 2]), "holds no weights"),
        "no state": (save(folder / "n.pth", {"model": None}), "holds no weights"),
        "empty state": (save(folder / "e.pth", {"model": {}}), "holds no weights"),
        "integers": (save(folder / "i.pth", {"model": {k: v.int() for k, v in state.items()}}), "holds no weights"),
        "network": (
            save(folder / "o.pth", {"model": build("wrn_16_1", 10).state_dict()}),
            r"holds a wrn_16_1, not a resnet8: write load_published\('wrn_16_1', \.\.\., num_classes=10\)",
        ),
        "classes": (
            save(folder / "c.pth", {"model": build("resnet8", 10).state_dict()}),
            "has 10 classes, not 100: write num_classes=10",
        ),
        "lacking": (save(folder / "a.pth", {"model": lacking}), "does not fit resnet8: it lacks bn1.bias"),
        "more": (save(folder / "b.pth", {"model": state | {"x": torch.ones(1)}}), "does not fit resnet8: it has x"),
        "shape": (save(folder / "s.pth", {"model": wrong}), r"conv1.weight has shape \(16, 1, 3, 3\)"),
    }


CASES = "missing folder text empty cut hostile pickled module list integers network classes lacking more shape"


@pytest.mark.parametrize("case", [*CASES.split(), "no state", "empty state"])
def test_bad_checkpoints_get_one_clear_line(bad_files: dict[str, tuple[Path, str]], case: str) -> None:
    path, says = bad_files[case]
    with pytest.raises(InputError, match=says) as caught:
        load_published("resnet8", path)
    assert "\n" not in str(caught.value)
    assert re.search(re.escape(str(path)), str(caught.value))
    assert not (bad_files["folder"][0] / "was-run").exists()
