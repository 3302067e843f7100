"""The images of the tests on a simulated GPU."""

from support.simulated_gpu.fixtures import images as images
