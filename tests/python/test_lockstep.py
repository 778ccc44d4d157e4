"""The Python package: the seeds' scripts with their import lines changed, arrays, callbacks, ranks and mistakes."""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy

import lockstep as torch
from lockstep import LockstepError, dl, nn, optim, sapsan
from lockstep.data import ToTensor
from lockstep.dl import SupervisedRunner, utils
from lockstep.text import Tokenizer
from lockstep.utils.data import DataLoader, DistributedSampler, PadCollate, TensorDataset, TextStream

COMMAND = os.environ["LOCKSTEP_TEST_COMMAND"]


def regression(num_samples=200, num_features=10):
    x, y = torch.rand(num_samples, num_features), torch.rand(num_samples)
    return TensorDataset(x, y)


def two_classes(count=96):
    """Points that a linear layer can tell apart."""
    draw = numpy.random.RandomState(0)
    y = draw.randint(0, 2, count)
    x = draw.randn(count, 4).astype(numpy.float32) + 2 * y[:, None].astype(numpy.float32)
    return x, y


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.before = os.getcwd()
        os.chdir(self.folder.name)
        torch.manual_seed(0)

    def tearDown(self):
        os.chdir(self.before)
        self.folder.cleanup()


class Seeds(InFolder):
    def test_minimal(self):
        dataset = regression()
        loader = DataLoader(dataset, batch_size=32, num_workers=1)
        loaders = {"train": loader, "valid": loader}
        model = torch.nn.Linear(10, 1)
        criterion = torch.nn.MSELoss()
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6])
        runner = SupervisedRunner()
        runner.train(model=model, criterion=criterion, optimizer=optimizer, scheduler=scheduler, loaders=loaders,
                     logdir="./logdir", num_epochs=8)
        self.assertAlmostEqual(runner.epoch_metrics["train"]["lr"], 1e-5)
        self.assertTrue(os.path.exists("logdir/checkpoints/model.best.safetensors"))

    def test_equals_the_command(self):
        """A config that says the same ends in the same weights."""
        x, y = two_classes()
        numpy.save("x.npy", x)
        numpy.save("y.npy", y)
        with open("config.yml", "w") as file:
            file.write("""
runner: {_target_: SupervisedRunner, model: {_target_: Sequential, args: [{_target_: Linear, args: [4, 8]}, ReLU,
         {_target_: Linear, args: [8, 2]}]}}
run:
  - _call_: train
    seed: 7
    criterion: CrossEntropyLoss
    optimizer: {_target_: Adam, lr: 0.05}
    loaders: {train: {_target_: DataLoader, dataset: {_target_: TensorDataset, args: [x.npy, y.npy]},
              batch_size: 10, shuffle: y}}
    num_epochs: 3
    logdir: command
""")
        subprocess.run([COMMAND, "run", "-C", "config.yml", "--quiet"], check=True)
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        runner = SupervisedRunner()
        runner.train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.05),
                     loaders={"train": DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)}, num_epochs=3)
        expected = torch.load("command/checkpoints/model.last.safetensors")
        self.assertEqual(torch.weights_hash(model.state_dict()), torch.weights_hash(expected))

    def test_parts_and_transforms(self):
        from lockstep.utils.data import random_split
        from lockstep.vision import datasets, transforms
        digits = torch.SyntheticDigits(count=40)
        train, valid = random_split(digits, [0.75, 0.25], seed=3, transforms=[
            [transforms.RandomRotation(10), transforms.Resize(14), transforms.Normalize([0.5], [0.5])],
            [transforms.Resize(14), transforms.Normalize([0.5], [0.5])]])
        runner = SupervisedRunner()
        model = nn.Sequential(nn.Flatten(), nn.Linear(196, 10))
        runner.train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.SGD(model.parameters(), lr=0.1),
                     loaders={"train": DataLoader(train, batch_size=10), "valid": DataLoader(valid, batch_size=10)},
                     num_epochs=1)
        self.assertGreater(runner.epoch_metrics["valid"]["loss"], 0)
        with self.assertRaises(LockstepError) as caught:
            random_split(regression(10), [3, 3])
        self.assertIn("their sum is 6", str(caught.exception))
        with self.assertRaises(ValueError):
            random_split(regression(10), [5, 5], transforms=[None])
        with self.assertRaises(LockstepError) as caught:
            datasets.CIFAR10("nowhere")
        self.assertIn("CIFAR-10: no data_batch_1.bin", str(caught.exception))

    def test_datasets(self):
        """The second and the third way of Catalyst's tutorial."""
        def datasets_fn(num_features):
            dataset = regression(num_features=num_features)
            return {"train": dataset, "valid": dataset}

        for datasets in (dict({"batch_size": 32, "num_workers": 1}, **datasets_fn(10)),
                         {"batch_size": 32, "num_workers": 1, "get_datasets_fn": datasets_fn, "num_features": 10}):
            model = torch.nn.Linear(10, 1)
            runner = SupervisedRunner()
            runner.train(model=model, datasets=datasets, criterion=torch.nn.MSELoss(),
                         optimizer=torch.optim.Adam(model.parameters()), num_epochs=2)
            self.assertEqual(set(runner.epoch_metrics), {"train", "valid", "_epoch_"})

    def test_custom_runner_on_ranks(self):
        class CustomRunner(dl.SupervisedRunner):
            def get_engine(self):
                return dl.DistributedDataParallelEngine()

            def get_loaders(self):
                data = TensorDataset(*two_classes())
                return {"train": DataLoader(data, sampler=DistributedSampler(dataset=data), batch_size=8),
                        "valid": DataLoader(data, sampler=DistributedSampler(dataset=data), batch_size=8)}

        model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        runner = CustomRunner()
        runner.train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.02),
                     logdir="./logs", valid_loader="valid", valid_metric="loss", minimize_valid_metric=True, num_epochs=4,
                     nproc=2,
                     callbacks=[dl.AccuracyCallback(input_key="logits", target_key="targets", num_classes=2),
                                dl.AUCCallback(input_key="logits", target_key="targets")])
        self.assertGreater(runner.epoch_metrics["valid"]["accuracy01"], 0.85)
        with open("logs/log.txt") as log:
            self.assertIn("2 ranks", log.read())

    def test_distributed_cmd_run(self):
        def train():
            model = torch.nn.Linear(10, 1)
            runner = SupervisedRunner()
            runner.train(model=model, datasets={"batch_size": 32, "train": regression()}, criterion=torch.nn.MSELoss(),
                         optimizer=torch.optim.Adam(model.parameters()), num_epochs=1, logdir="./logs")
            with open("rank%d" % torch.rank(), "w") as file:
                file.write("%d %s" % (torch.world_size(), torch.weights_hash(model.state_dict())))

        utils.distributed_cmd_run(train, nproc=2)
        with open("rank0") as first, open("rank1") as second:
            self.assertEqual(first.read(), second.read())


    def test_estimator(self):
        """Sapsan's script: the configuration, the loaders, and train()."""
        def fields(**options):
            return torch.HDF5Fields(path="none/{feature}_{checkpoint:1.0f}.h5", features="u", checkpoints=[0],
                                    input_size=[16, 16, 16], batch_size=[8, 8, 8], train_fraction=0.75,
                                    missing="turbulence", **options)

        loaders = {"train": DataLoader(fields(), batch_size=2), "valid": DataLoader(fields(train=False), batch_size=2)}
        config = sapsan.CNN3dConfig(n_epochs=2, patience=10, min_delta=1e-5, ddp=True, nproc=2, verbose=False, logdir="logs")
        sapsan.CNN3d(config=config, loaders=loaders).train(save="saved")
        self.assertTrue(os.path.exists("saved/params.json"))


class Arrays(InFolder):
    def test_nothing_is_copied(self):
        x = numpy.zeros((8, 4), numpy.float32)
        model = nn.Linear(4, 2)
        weights = model.state_dict()["weight"]
        weights[:] = 1
        runner = SupervisedRunner()
        runner.train(model=model, criterion=nn.MSELoss(), optimizer=optim.SGD(model.parameters(), lr=0.5),
                     loaders={"train": DataLoader(TensorDataset(x, numpy.ones((8, 2), numpy.float32)), batch_size=8)})
        numpy.testing.assert_array_equal(model.state_dict()["weight"], numpy.ones((2, 4)))
        x[:] = 1
        output = runner.predict_batch(x)["logits"]
        expected = x @ model.state_dict()["weight"].T + model.state_dict()["bias"]
        numpy.testing.assert_allclose(output, expected, rtol=1e-6)

    def test_views_outlive_their_model(self):
        arrays = nn.Linear(4, 2).state_dict()
        self.assertTrue(numpy.isfinite(arrays["weight"]).all())
        drawn = torch.rand(3, 5).numpy()
        self.assertTrue(((drawn >= 0) & (drawn < 1)).all())

    def test_dtypes(self):
        x, y = two_classes()
        for features, targets in ((x.astype(numpy.float64), y.astype(numpy.int32)), (x[::2], y[::2]), (x, y.astype(numpy.uint8))):
            model = nn.Linear(4, 2)
            SupervisedRunner().train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.SGD(lr=0.1),
                                     loaders={"train": DataLoader(TensorDataset(features, targets), batch_size=16)})

    def test_files(self):
        model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
        for name in ("a.safetensors", "a.pth", "a.npz"):
            model.save(name)
            other = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
            other.load_state_dict(name)
            for key, value in model.state_dict().items():
                numpy.testing.assert_array_equal(other.state_dict()[key], value)
        other.load_state_dict({key: value * 2 for key, value in model.state_dict().items()})
        numpy.testing.assert_array_equal(other.state_dict()["0.bias"], model.state_dict()["0.bias"] * 2)

    def test_evaluation(self):
        x, y = two_classes()
        model = nn.Linear(4, 2)
        runner = SupervisedRunner()
        loader = DataLoader(TensorDataset(x, y), batch_size=10)
        runner.train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.1),
                     loaders={"train": loader}, num_epochs=5)
        outputs = numpy.concatenate([batch["logits"] for batch in runner.predict_loader(loader)])
        found = runner.evaluate_loader(loader, callbacks=[dl.AccuracyCallback("logits", "targets", num_classes=2)])
        self.assertAlmostEqual(found["accuracy01"], (outputs.argmax(1) == y).mean(), places=6)
        runner.train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.1),
                     loaders={"train": loader})  # once more, with the model that the runner has


class Callbacks(InFolder):
    def train(self, *callbacks, **arguments):
        x, y = two_classes()
        model = nn.Linear(4, 2)
        runner = SupervisedRunner()
        data = TensorDataset(x, y)
        runner.train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.1),
                     loaders={"train": DataLoader(data, batch_size=16), "valid": DataLoader(data, batch_size=16)},
                     callbacks=list(callbacks), **arguments)
        return runner

    def test_moments_and_metrics(self):
        seen = []

        class Margin(dl.Callback):
            def on_loader_start(self, runner):
                self.margins = []

            def on_batch_end(self, runner):
                logits = runner.tensor("logits")
                self.margins.append(abs(logits[:, 1] - logits[:, 0]).mean())

            def on_loader_end(self, runner):
                runner.loader_metrics["margin"] = numpy.mean(self.margins)

            def on_epoch_end(self, runner):
                seen.append(runner.epoch_step)
                runner.need_early_stop = runner.epoch_step == 3

        runner = self.train(Margin(), num_epochs=9)
        self.assertEqual(seen, [1, 2, 3])
        self.assertGreater(runner.epoch_metrics["valid"]["margin"], 0)

    def test_exceptions_come_back(self):
        class Stops(dl.Callback):
            def on_batch_end(self, runner):
                raise ZeroDivisionError("on purpose")

        with self.assertRaisesRegex(ZeroDivisionError, "on purpose"):
            self.train(Stops())

    def test_exceptions_on_ranks(self):
        class Stops(dl.Callback):
            def on_epoch_end(self, runner):
                if runner.rank == 1:
                    raise ValueError("rank one has had enough")

        with self.assertRaisesRegex(LockstepError, "rank one has had enough"):
            self.train(Stops(), nproc=2, ddp=True)


class Texts(InFolder):
    GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "text")

    def test_tokenizers(self):
        bpe = Tokenizer.bpe(os.path.join(self.GOLDEN, "vocab.json"), os.path.join(self.GOLDEN, "merges.txt"))
        for text in ("", "it wasn't the rain", "caf\u00e9 \U0001f600\n\n x"):
            self.assertEqual(bpe.decode(bpe.encode(text)), text)
        self.assertEqual(bpe.find("<|endoftext|>"), len(bpe) - 1)
        self.assertEqual(Tokenizer.bytes().encode(b"a\xff\x00").tolist(), [97, 255, 0])
        chars = Tokenizer.chars_of("banana")
        self.assertEqual(chars.encode("nab").tolist(), [2, 0, 1])
        chars.save("vocab.json")
        self.assertEqual(Tokenizer.chars("vocab.json").decode([1, 0]), "ba")
        self.assertRaisesRegex(LockstepError, "no character", lambda: chars.encode("x"))
        self.assertRaisesRegex(LockstepError, "no such number", lambda: chars.decode([3]))
        self.assertRaisesRegex(LockstepError, "no token", lambda: chars.find("x"))

    def test_a_stream_of_lines_trains(self):
        with open("lines.txt", "w") as out:
            out.writelines("ab" * (1 + i % 7) + "\n" for i in range(60))
        model = nn.Sequential(nn.Embedding(256, 8), nn.Linear(8, 256), nn.Transpose(1, 2))
        stream = TextStream("lines.txt", max_length=16, next_token=True, shuffle_buffer=10)
        collate = PadCollate(keys=["features", "targets"], pad_values=[0, -100], multiple=4)
        seen = []

        class Note(dl.Callback):
            def on_batch_end(self, runner):
                seen.append(runner.batch_size)

        SupervisedRunner().train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.01),
                                 loaders={"train": DataLoader(stream, batch_size=8, num_workers=2, collate_fn=collate)},
                                 callbacks=[Note()], num_epochs=1)
        self.assertEqual(seen, [8] * 7 + [4])
        self.assertRaisesRegex(LockstepError, "shuffle_buffer", lambda: SupervisedRunner().train(
            model=nn.Linear(4, 2), criterion=nn.CrossEntropyLoss(), optimizer="Adam",
            loaders={"train": DataLoader(stream, batch_size=8, shuffle=True)}, num_epochs=1))


class Mistakes(InFolder):
    def refused(self, pattern, function, kind=LockstepError):
        with self.assertRaisesRegex(kind, pattern):
            function()

    def test_sentences(self):
        model = nn.Linear(4, 2)
        runner = SupervisedRunner()
        loaders = {"train": DataLoader(TensorDataset(*two_classes()), batch_size=8)}
        self.refused("in_featurs", lambda: nn.Linear(in_featurs=3, out_features=2))
        self.refused("in_features: expected an integer", lambda: nn.Linear("wide", 2))
        self.refused("no component 'Liner'", lambda: nn.Liner(2, 2), AttributeError)
        self.refused("num_epoch", lambda: runner.train(model=model, loaders=loaders, num_epoch=3))
        self.refused("found DataLoader", lambda: runner.train(model=loaders["train"], loaders=loaders))
        self.refused("complex64", lambda: TensorDataset(numpy.zeros(3, numpy.complex64)))
        self.refused("no form for", lambda: nn.Linear(4, object()))
        self.refused("no model yet", lambda: SupervisedRunner().predict_batch(numpy.zeros((1, 4), numpy.float32)))
        self.refused("missing.pth", lambda: torch.load("missing.pth"))

        class OwnBatch(SupervisedRunner):
            def handle_batch(self, batch):
                pass

        self.refused("handle_batch cannot be written in Python", OwnBatch)

    def test_a_module_belongs_to_one_model(self):
        inner = nn.Linear(4, 2)
        nn.Sequential(inner)
        self.refused("belongs to another", lambda: SupervisedRunner().train(
            model=inner, loaders={"train": DataLoader(TensorDataset(*two_classes()))}, criterion=nn.CrossEntropyLoss(),
            optimizer=optim.SGD(lr=0.1)))

    def test_every_component_is_a_class(self):
        listed = subprocess.run([COMMAND, "components"], check=True, stdout=subprocess.PIPE).stdout.decode()
        names = [line.split()[0] for line in listed.split("call:")[0].splitlines() if line.startswith("  ")]
        self.assertGreater(len(names), 100)
        self.assertEqual([name for name in names if not callable(getattr(torch, name.split(".")[-1], None))], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + ["-q"] + sys.argv[1:])
