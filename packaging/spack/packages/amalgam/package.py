import os

try:  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:
    pass
from spack.package import *


class Amalgam(CMakePackage):
    """C++ library and tool for programs that span processes and machines: transports by URI,
    remote calls, bulk memory, streaming graphs, a directory of resources, and code that is sent
    to where the data is."""

    # The repository that this recipe lies in.
    git = "file://" + os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))

    version("main", branch="main")

    variant("tool", default=True, description="The command amalgam")
    variant("hwloc", default=True, description="Name CPUs by socket, NUMA node and core")
    variant("ucx", default=False, description="The transport plug-in ucx")
    variant("ofi", default=False, description="The transport plug-in ofi, on libfabric")
    variant("mpi", default=False, description="The transport plug-in mpi, on Open MPI")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("boost@1.81: +context")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("openssl@3:")
    depends_on("spdlog@1.10:")
    depends_on("libsodium")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("cli11@2.1:", type="build", when="+tool")
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("libfabric@1.17:", when="+ofi")
    depends_on("openmpi@4.1:", when="+mpi")

    conflicts("%gcc@:11", msg="Amalgam needs C++20 as GCC 12 has it")
    conflicts("%clang@:13", msg="Amalgam needs C++20 as clang 14 has it")

    def cmake_args(self):
        plugins = [name for name in ("ucx", "ofi", "mpi") if self.spec.satisfies("+" + name)]
        return [
            self.define("AMALGAM_TESTS", False),
            self.define("AMALGAM_EXAMPLES", False),
            self.define("AMALGAM_PEERS", False),
            self.define("AMALGAM_PLUGINS", ";".join(plugins)),
            self.define_from_variant("AMALGAM_TOOL", "tool"),
            self.define_from_variant("AMALGAM_HWLOC", "hwloc"),
        ]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        if self.spec.satisfies("+tool"):
            Executable(self.prefix.bin.amalgam)("info", "--json")
