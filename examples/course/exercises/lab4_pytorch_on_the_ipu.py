# %% [markdown]
# # Lab 4: port PyTorch code to the IPU
#
# PopTorch runs a `torch.nn.Module` on the IPU. You wrap the model once for training and once for inference; forward,
# loss, backward and the optimizer's step then become one executable, so the loop around them gets shorter.
#
# The notebook runs as it is, on the host. Where you see **TODO**, change the cell, then run the notebook again.

# %%
import torch
from torch import nn

import poptorch
from openipu import datasets

BATCH = 16
EPOCHS = 3

# %% [markdown]
# ## The data
#
# Pictures of clothes, as an ordinary PyTorch dataset.


# %%
def as_dataset(images, labels):
    """Images between -1 and 1, labels as PyTorch wants them."""
    images = torch.from_numpy(images).float().unsqueeze(1) / 127.5 - 1
    return torch.utils.data.TensorDataset(images, torch.from_numpy(labels).long())


train_set, test_set = (as_dataset(*split) for split in datasets.fashion_mnist())

# %% [markdown]
# ## Step 1: the loss belongs to the model
#
# The whole step is compiled, so the model itself must compute the loss. Let `forward` take labels as a second
# argument: when it is given labels it returns the scores and the loss; without them it only predicts.


# %%
class Classifier(nn.Module):
    """A small convolutional network that tells clothes apart."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU())
        self.classes = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images):  # TODO: labels=None, and the loss beside the scores
        return self.classes(self.features(images))


# %% [markdown]
# ## Step 2: options and the data loader
#
# `deviceIterations` is the number of batches in one call, `replicationFactor` the number of copies of the model, and
# `Training.gradientAccumulation` the number of batches in one weight update. The IPU's data loader puts together what
# one call needs: `BATCH * deviceIterations * replicationFactor * gradientAccumulation` examples.

# %%
options = poptorch.Options()
# TODO: 20 device iterations and 2 replicas

# TODO: poptorch.DataLoader, whose first argument is the options
loader = torch.utils.data.DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)
print(f"{len(loader)} calls in an epoch, each with {len(next(iter(loader))[0])} examples")

# %% [markdown]
# ## Step 3: train
#
# With PopTorch there is no `backward`, no `step` and no `zero_grad`: a call of the wrapped model does all of it, for
# all its batches. Shapes are compiled in, which is why the loader drops an incomplete last call. While this cell runs,
# look at `gc-monitor` in a terminal; `detachFromDevice()` gives the IPUs back.

# %%
torch.manual_seed(1)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)  # TODO: poptorch.optim.SGD
training_model = model  # TODO: poptorch.trainingModel(model, options, optimizer)

for epoch in range(EPOCHS):
    losses = []
    for images, labels in loader:
        # TODO: all of this becomes one call, training_model(images, labels), which returns scores and loss
        optimizer.zero_grad()
        loss = model.loss(training_model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print(f"epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}")

# TODO: training_model.detachFromDevice()

# %% [markdown]
# ## Step 4: predict
#
# Inference has options and a wrapper of its own. The weights are those of `model`: training has brought them back.

# %%
model.eval()
# TODO: poptorch.Options() with 10 device iterations, poptorch.DataLoader and poptorch.inferenceModel
inference_loader = torch.utils.data.DataLoader(test_set, batch_size=20)
inference_model = model

correct = total = 0
for images, labels in inference_loader:
    correct += (inference_model(images).argmax(dim=1) == labels).sum().item()
    total += len(labels)

# %% [markdown]
# ## Check
#
# When you are done, the next cell says `PoplarExecutor`.

# %%
print(f"trained by {type(training_model).__name__}")
print(f"test accuracy {correct / total:.3f}")

# %% [markdown]
# ## Questions
#
# 1. Without changing anything else, `training_model(images, labels)` returns the loss of how many batches? Look at
#    `options.outputMode` in the documentation of PopTorch, and try `poptorch.OutputMode.Sum`.
# 2. Replace 2 replicas by 2 accumulated batches. What stays the same?
# 3. Cut the model into two stages on two IPUs with `poptorch.BeginBlock(model.classes, ipu_id=1)`. What else must
#    change?
