# Spack's recipe. `make dist` fills in the version, the tarball and its checksum:
#
#     make dist
#     mkdir -p REPO/packages/lockstep && cp build/packaging/spack/package.py REPO/packages/lockstep/
#     spack install lockstep +mpi
from spack.package import *


class Lockstep(CMakePackage):
    """Distributed training of neural networks in C: a library, a command, and a package for Python."""

    url = "@URL@"
    license("MIT")

    version("@VERSION@", sha256="@SHA256@")

    variant("mpi", default=True, description="Ranks under mpirun")
    variant("hdf5", default=True, description="HDF5 data")
    variant("fftw", default=True, description="Filters and spectra of fields")
    variant("cuda", default=False, description="Training on GPUs")
    variant("python", default=True, description="The Python package")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("zlib-api")
    depends_on("libyaml")
    depends_on("jansson")
    depends_on("openssl")
    depends_on("libdeflate")
    depends_on("curl")
    depends_on("libpng")
    depends_on("jpeg")
    depends_on("openblas")
    depends_on("mpi", when="+mpi")
    depends_on("hdf5", when="+hdf5")
    depends_on("fftw", when="+fftw")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl", when="+cuda")
    depends_on("python@3.8:", type=("build", "run"), when="+python")
    depends_on("py-numpy", type="run", when="+python")

    extends("python", when="+python")
    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("BUILD_TESTING", False),
            self.define("LOCKSTEP_WERROR", False),
            self.define("LOCKSTEP_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("CMAKE_DISABLE_FIND_PACKAGE_MPI", not self.spec.satisfies("+mpi")),
        ]
        if self.spec.satisfies("+python"):
            args.append(self.define("LOCKSTEP_PYTHON", self.spec["python"].command.path))
        return args
