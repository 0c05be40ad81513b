// Bare Open MPI: messages one round trip at a time, and one-sided transfers to a rank that waits in
// a receive, one or several in flight, over its shared memory or its sockets. Restarts itself under
// mpirun, as two ranks.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <mpi.h>
#include <unistd.h>

#include "peers/peer.hpp"

namespace {

using namespace amalgam;
using bench::peer_question;

constexpr int work = 1, end = 2;

[[noreturn]] void become_two_ranks(const peer_question& asked, char** argv) {
    std::vector<std::string> words{"mpirun"};
    if (::geteuid() == 0) words.push_back("--allow-run-as-root");
    const std::string fabric = asked.over == "shm" ? "vader,self" : "tcp,self";
    for (const char* word : {"-n", "2", "--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl"})
        words.emplace_back(word);
    words.push_back(fabric);
    if (asked.over == "tcp")  // Its default choice does not work over sockets alone.
        for (const char* word : {"--mca", "osc", "pt2pt"})
            words.emplace_back(word);
    words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
    for (char** one = argv + 1; *one != nullptr; ++one)
        words.emplace_back(*one);
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execvp("mpirun", arguments.data());
    std::fprintf(
        stderr,
        "cannot run mpirun (%s), expected Open MPI's; example: Debian's package openmpi-bin\n",
        std::strerror(errno));
    std::exit(1);
}

perf::measurement round_trips(const peer_question& asked, std::vector<char>& bytes) {
    const int size = static_cast<int>(asked.size);
    return perf::measure_round_trips(asked.seconds, [&] {
        MPI_Send(bytes.data(), size, MPI_CHAR, 1, work, MPI_COMM_WORLD);
        MPI_Recv(bytes.data(), size, MPI_CHAR, 1, work, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    });
}

perf::measurement transfers(const peer_question& asked, MPI_Win window) {
    const int size = static_cast<int>(asked.size);
    std::vector<std::vector<char>> here(asked.depth, std::vector<char>(asked.size));
    std::vector<MPI_Request> open(asked.depth, MPI_REQUEST_NULL);
    std::size_t next = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
    auto m = perf::measure_round_trips(asked.seconds, asked.depth, [&] {
        MPI_Wait(&open[next], MPI_STATUS_IGNORE);
        if (asked.puts())
            MPI_Rput(here[next].data(), size, MPI_CHAR, 1, 0, size, MPI_CHAR, window, &open[next]);
        else
            MPI_Rget(here[next].data(), size, MPI_CHAR, 1, 0, size, MPI_CHAR, window, &open[next]);
        next = (next + 1) % asked.depth;
        // MPI cannot tell of one put that it is at the target: once for as many as are in flight.
        if (asked.delivered && next == 0) MPI_Win_flush(1, window);
    });
    MPI_Waitall(static_cast<int>(open.size()), open.data(), MPI_STATUSES_IGNORE);
    MPI_Win_unlock(1, window);
    return m;
}

/// Echoes messages and progresses one-sided transfers until told to end.
void serve(std::vector<char>& bytes) {
    for (;;) {
        MPI_Status got;
        MPI_Recv(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, 0, MPI_ANY_TAG,
                 MPI_COMM_WORLD, &got);
        if (got.MPI_TAG == end) return;
        int size = 0;
        MPI_Get_count(&got, MPI_CHAR, &size);
        MPI_Send(bytes.data(), size, MPI_CHAR, 0, work, MPI_COMM_WORLD);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const peer_question asked = bench::peer_question_of(argc, argv);
    if (asked.is("message-rate")) return bench::not_offered;
    if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) become_two_ranks(asked, argv);
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<char> bytes(asked.size + 1);
    MPI_Win window = MPI_WIN_NULL;
    void* block = nullptr;
    const auto window_bytes = static_cast<MPI_Aint>(asked.size);
    if (asked.block())
        MPI_Win_allocate(window_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &block, &window);
    else if (!asked.is("message-latency"))
        MPI_Win_create(bytes.data(), window_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (rank == 0) {
        const auto m =
            window == MPI_WIN_NULL ? round_trips(asked, bytes) : transfers(asked, window);
        MPI_Send(bytes.data(), 0, MPI_CHAR, 1, end, MPI_COMM_WORLD);
        bench::print_answer(asked, "mpi", m);
    } else {
        serve(bytes);
    }
    if (window != MPI_WIN_NULL) MPI_Win_free(&window);
    MPI_Finalize();
}
