"""torchvision's residual networks without their classifier, under torchvision's parameter names."""

from torch import Tensor
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet


class ResNetTrunk(ResNet):
    """[B, 3, H, W] → [B, F, H/32, W/32]."""

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], layers: list[int]) -> None:
        super().__init__(block, layers)
        del self.avgpool, self.fc

    def forward(self, images: Tensor) -> Tensor:
        maps = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return self.layer4(self.layer3(self.layer2(self.layer1(maps))))


def resnet18() -> ResNetTrunk:
    return ResNetTrunk(BasicBlock, [2, 2, 2, 2])


def resnet50() -> ResNetTrunk:
    return ResNetTrunk(Bottleneck, [3, 4, 6, 3])
