// Open MPI's own ping-pong, polling, one message at a time. Run under mpirun with two ranks.
//   open_mpi SIZE SECONDS
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <mpi.h>

#include "perf/measurement.hpp"

int main(int argc, char** argv) {
    using namespace amalgam;
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        if (rank == 0) std::fprintf(stderr, "usage: mpirun -n 2 %s SIZE SECONDS\n", argv[0]);
        MPI_Finalize();
        return 2;
    }
    const int size = std::atoi(argv[1]);
    std::vector<char> bytes(static_cast<std::size_t>(size) + 1);
    constexpr int work = 1, end = 2;
    if (rank == 0) {
        auto m = perf::measure_round_trips(std::atof(argv[2]), [&] {
            MPI_Send(bytes.data(), size, MPI_CHAR, 1, work, MPI_COMM_WORLD);
            MPI_Recv(bytes.data(), size, MPI_CHAR, 1, work, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        });
        MPI_Send(bytes.data(), 0, MPI_CHAR, 1, end, MPI_COMM_WORLD);
        m.test = "message-latency";
        m.uri = "open-mpi";
        m.size_bytes = static_cast<std::size_t>(size);
        m.bytes_per_s = 2 * m.ops_per_s * size;
        std::puts(perf::to_json(m).c_str());
    } else {
        for (;;) {
            MPI_Status got;
            MPI_Recv(bytes.data(), size, MPI_CHAR, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &got);
            if (got.MPI_TAG == end) break;
            MPI_Send(bytes.data(), size, MPI_CHAR, 0, work, MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
}
