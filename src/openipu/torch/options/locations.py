"""Where tensors are kept on a real IPU; recorded, without an effect on results."""

from typing import Self

from openipu.torch.options.base import OptionsDict


class TensorLocationSettings(OptionsDict):
    """Where one kind of tensor is kept."""

    def minElementsForOffChip(self, min_elements: int) -> Self:
        """Tensors with fewer elements stay on the chip."""
        assert isinstance(min_elements, int), f"minElementsForOffChip needs an int. Received: {type(min_elements)}"
        return self.createOrSet(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> Self:
        """Tensors with fewer elements are not shared out over replicas."""
        assert isinstance(min_elements, int), (
            f"minElementsForReplicatedTensorSharding needs an int. Received: {type(min_elements)}"
        )
        return self.createOrSet(minElementsForReplicatedTensorSharding=min_elements)

    def useOnChipStorage(self, use: bool | None = True) -> Self:
        """On the chip or in streaming memory; None leaves the choice to the compiler."""
        if use is None:
            self.deleteIfExists("onChip")
            return self
        return self._flag("onChip", "useOnChipStorage", use)

    def useReplicatedTensorSharding(self, use: bool = True) -> Self:
        """Whether every replica keeps only its share."""
        return self._flag("useReplicatedTensorSharding", "useReplicatedTensorSharding", use)

    def useIOTilesToLoad(self, use: bool = True) -> Self:
        """Whether tiles set aside for I/O load the tensors."""
        return self._flag("useIOTilesToLoad", "useIOTilesToLoad", use)

    def useIOTilesToStore(self, use: bool = True) -> Self:
        """Whether tiles set aside for I/O store the tensors."""
        return self._flag("useIOTilesToStore", "useIOTilesToStore", use)

    def _flag(self, name: str, method: str, use: bool) -> Self:
        assert isinstance(use, bool), f"{method} needs a bool. Received: {type(use)}"
        return self.createOrSet(**{name: int(use)})


class _TensorLocationOptions(OptionsDict):
    """Where each kind of tensor is kept."""

    def numIOTiles(self, num_tiles: int) -> Self:
        """Tiles set aside for transfers; needed for transfers that overlap with computation."""
        assert isinstance(num_tiles, int) and 32 <= num_tiles <= 192 and num_tiles % 2 == 0, (
            "numIOTiles must be an even number between 32 and 192."
        )
        return self.createOrSet(numIOTiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> Self:
        """Where activations are kept."""
        return self._location("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> Self:
        """Where weights are kept."""
        return self._location("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> Self:
        """Where the optimizer's state is kept."""
        return self._location("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> Self:
        """Where gradient accumulators are kept."""
        return self._location("location_accumulator", location)

    def _location(self, name: str, location: TensorLocationSettings) -> Self:
        assert isinstance(location, TensorLocationSettings), (
            f"A location must be a poptorch.TensorLocationSettings. Received: {type(location)}"
        )
        return self.createOrSet(**{name: location.toDict()})
