// MPI_Init() and MPI_Finalize() of a program started alone, from its start to its end.
//   first_mpi    milliseconds
#include <cstdio>
#include <exception>
#include <string_view>

#include <mpi.h>

#include "spawned.hpp"

int main(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == "init") {
        MPI_Init(&argc, &argv);
        return MPI_Finalize();
    }
    try {
        std::printf("{\"test\": \"first\", \"value\": %.6g}\n",
                    amalgam::bench::milliseconds_of({argv[0], "init"}));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
