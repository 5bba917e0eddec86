# %% [markdown]
# # Lab 4: port PyTorch code to the IPU (solution)
#
# PopTorch runs a `torch.nn.Module` on the IPU. You wrap the model once for training and once for inference; forward,
# loss, backward and the optimizer's step then become one executable, so the loop around them gets shorter.

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
# The whole step is compiled, so the model itself must compute the loss. When it is given labels it returns the loss as
# well; without them it only predicts.


# %%
class Classifier(nn.Module):
    """A small convolutional network that tells clothes apart."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU())
        self.classes = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images, labels=None):
        scores = self.classes(self.features(images))
        if labels is None:
            return scores
        return scores, self.loss(scores, labels)


# %% [markdown]
# ## Step 2: options and the data loader
#
# `deviceIterations` is the number of batches in one call, `replicationFactor` the number of copies of the model, and
# `Training.gradientAccumulation` the number of batches in one weight update. The IPU's data loader puts together what
# one call needs: `BATCH * deviceIterations * replicationFactor * gradientAccumulation` examples.

# %%
options = poptorch.Options()
options.deviceIterations(20)
options.replicationFactor(2)
options.Training.gradientAccumulation(1)
options.randomSeed(1)

loader = poptorch.DataLoader(options, train_set, batch_size=BATCH, shuffle=True, drop_last=True)
print(f"{len(loader)} calls in an epoch, each with {len(next(iter(loader))[0])} examples")

# %% [markdown]
# ## Step 3: train
#
# No `backward`, no `step`, no `zero_grad`: a call of the wrapped model does all of it, for all its batches. Shapes are
# compiled in, which is why the loader drops an incomplete last call.

# %%
torch.manual_seed(1)
model = Classifier()
optimizer = poptorch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
training_model = poptorch.trainingModel(model, options, optimizer)

for epoch in range(EPOCHS):
    losses = [training_model(images, labels)[1] for images, labels in loader]
    print(f"epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}")

training_model.detachFromDevice()

# %% [markdown]
# ## Step 4: predict
#
# Inference has options and a wrapper of its own. The weights are those of `model`: training has brought them back.

# %%
model.eval()
inference_options = poptorch.Options().deviceIterations(10)
inference_loader = poptorch.DataLoader(inference_options, test_set, batch_size=20, drop_last=True)
inference_model = poptorch.inferenceModel(model, inference_options)

correct = total = 0
for images, labels in inference_loader:
    correct += (inference_model(images).argmax(dim=1) == labels).sum().item()
    total += len(labels)
inference_model.detachFromDevice()

# %% [markdown]
# ## Check

# %%
print(f"trained by {type(training_model).__name__}")
print(f"test accuracy {correct / total:.3f}")
