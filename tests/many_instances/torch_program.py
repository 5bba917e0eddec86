"""Run by poprun: trains on four replicas in all, and leaves what it saw in a file for each instance."""

import pathlib
import sys
import threading

import horovod.torch as hvd
import numpy as np
import torch

import popdist
import popdist.poptorch
import poptorch

REPLICAS, BATCH, STEPS = 4, 8, 50


class Classifier(torch.nn.Module):
    def __init__(self, staged):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.ReLU())
        self.second = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(10, 3))
        if staged:
            poptorch.BeginBlock(self.first, "first", ipu_id=0)
            poptorch.BeginBlock(self.second, "second", ipu_id=1)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, y):
        out = self.second(self.first(x))
        return out, self.loss(out, y)


def batches(updates, accumulation, calls):
    """The data of all replicas, [call, update, micro-batch, replica, ...], and this instance's part of it."""
    random = np.random.default_rng(3)
    shape = (calls, updates, accumulation, REPLICAS, BATCH)
    x = random.standard_normal((*shape, 6)).astype(np.float32)
    y = x[..., :3].argmax(-1)
    first, count = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
    own = slice(first, first + count)
    for call in range(calls):
        yield torch.tensor(x[call, :, :, own].reshape(-1, 6)), torch.tensor(y[call, :, :, own].reshape(-1))


def train(accumulation, staged):
    torch.manual_seed(5)
    model = Classifier(staged)
    calls, updates = 5, STEPS // accumulation // 5
    options = popdist.poptorch.Options()
    options.deviceIterations(updates).randomSeed(11)
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(poptorch.OutputMode.All)
    if staged:
        options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    executor = poptorch.trainingModel(model, options, optimizer)
    losses = [executor(x, y)[1].numpy() for x, y in batches(updates, accumulation, calls)]
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    executor.destroy()
    # [steps, local replicas]
    return np.concatenate(losses).reshape(-1, popdist.getNumLocalReplicas()), weights


class Slope(torch.nn.Module):
    """A weight whose gradient is the input."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2, 1))

    def forward(self, x):
        return poptorch.identity_loss((x * self.w).sum(), reduction="sum")


def grouped():
    """A weight that each half of all replicas has its own of."""
    model = Slope()
    options = popdist.poptorch.Options()
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=1.0))
    executor.w.replicaGrouping(poptorch.CommGroupType.Consecutive, 2, poptorch.VariableRetrievalMode.OnePerGroup)
    first = popdist.getReplicaIndexOffset() + 1
    executor(torch.arange(first, first + popdist.getNumLocalReplicas()).float()[:, None])
    weight = model.w.detach().numpy().copy()
    executor.destroy()
    return weight


def partition():
    """What the loader of this instance gives in two epochs."""
    data = torch.utils.data.TensorDataset(torch.arange(50))
    options = popdist.poptorch.Options().randomSeed(2)
    loader = poptorch.DataLoader(options, data, batch_size=2, shuffle=True, auto_distributed_partitioning=True)
    return np.array([[int(i) for (batch,) in loader for i in batch] for _ in range(2)])


def host(made):
    """Values of the host: all flavours, any order, several threads, and layouts that do not match."""
    index, count = popdist.getInstanceIndex(), popdist.getNumInstances()
    assert (hvd.rank(), hvd.size(), hvd.local_rank()) == (index, count, popdist.getLocalInstanceIndex())
    own = torch.full((2,), float(index))
    made["average"] = hvd.allreduce(own, average=True).numpy()
    made["sum"] = hvd.allreduce(own, op=hvd.Sum).numpy()
    made["gathered"] = hvd.allgather(torch.full((index + 1,), index)).numpy()
    made["sent"] = hvd.broadcast(torch.tensor([index + 7]), root_rank=count - 1).numpy()
    mixed = hvd.grouped_allreduce([own, torch.tensor([index])], op=hvd.Sum)
    made["mixed"] = np.concatenate([m.numpy() for m in mixed])
    model = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(model.weight, index)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    made["parameters"] = model.weight.detach().numpy()

    found = {}

    def reduce(name):
        found[name] = float(hvd.allreduce(own, op=hvd.Sum, name=name)[0])

    threads = [threading.Thread(target=reduce, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads if index % 2 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    made["threads"] = np.array([found[name] for name in "abc"])
    made["on first"] = np.array(popdist.execute_on_instances({0}, lambda: 41 + popdist.getNumInstances()) or -1)
    if count > 1:
        try:
            hvd.allreduce(torch.zeros(index + 1), name="uneven")
            made["mismatch"] = np.array("passed")
        except popdist.popdist_error as error:
            made["mismatch"] = np.array(str(error))
    popdist.synchronize()


def alone(x):
    """A model of one instance, used by it alone while the others go on."""
    options = poptorch.Options()
    options.Distributed.disable()
    torch.manual_seed(5)
    executor = poptorch.inferenceModel(torch.nn.Linear(3, 2), options)
    return executor(x).numpy()


def main():
    popdist.init()
    popdist.init()
    hvd.init()
    made = {}
    for name, accumulation, staged in (("plain", 1, False), ("accumulated", 2, False), ("pipelined", 5, True)):
        losses, weights = train(accumulation, staged)
        made[f"losses {name}"] = losses
        made |= {f"weights {name} {key}": value for key, value in weights.items()}
    made["grouped"] = grouped()
    made["partition"] = partition()
    host(made)
    x = torch.ones(1, 3)
    made["alone"] = np.array(popdist.execute_on_instances({0}, alone, x) if popdist.getInstanceIndex() == 0 else 0.0)
    np.savez(pathlib.Path(sys.argv[1]) / f"{popdist.getInstanceIndex()}.npz", **made)


main()
