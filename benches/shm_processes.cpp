// Memory of processes on one host that all talk to all, through shared memory: what they hold
// together once each pair has exchanged messages, in MiB (proportional set size).
//   shm_processes PROCESSES
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/rpc/engine.hpp>

#include "questions.hpp"

namespace {

using namespace amalgam;

/// In memory of all processes.
struct shared {
    std::atomic<int> arrived{0};
    std::atomic<std::size_t> bytes{0};
};

void talk_to_all(const std::string& names, int mine, int all, shared& seen) {
    constexpr int calls = 100;
    engine here(names + std::to_string(mine));
    here.define("echo", [](std::string text) { return text; });
    int met = 0;
    const auto meet = [&] {
        ++seen.arrived;
        for (met += all; seen.arrived < met;)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    meet();
    const auto echo = here.procedure<std::string(std::string)>("echo");
    for (int i = mine + 1; i < all; ++i) {
        const auto there = echo.on(names + std::to_string(i));
        for (int call = 0; call < calls; ++call)
            (void)there("hello");
    }
    meet();
    seen.bytes += bench::proportional_bytes();
    meet();
}

double mebibytes_of(int all) {
    void* const room =
        ::mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) throw error(errc::no_memory, "no memory to share");
    shared& seen = *::new (room) shared;
    const std::string names = "shm://bench-" + std::to_string(::getpid()) + "-";
    for (int i = 0; i < all; ++i) {
        if (::fork() != 0) continue;
        int failed = 0;
        try {
            talk_to_all(names, i, all, seen);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "process %d: %s\n", i, e.what());
            failed = 1;
            seen.arrived += 3 * all;  // Nobody waits for it.
        }
        ::_exit(failed);
    }
    bool well = true;
    for (int i = 0, how = 0; i < all; ++i)
        well = ::wait(&how) > 0 && how == 0 && well;
    if (!well) throw error(errc::internal, "a process failed");
    return static_cast<double>(seen.bytes) / (1 << 20);
}

}  // namespace

int main(int argc, char** argv) {
    const int all = argc == 2 ? std::atoi(argv[1]) : 0;
    if (all < 2 || all > 1024) {
        std::fprintf(stderr, "usage: %s PROCESSES, from 2 to 1024\n", argv[0]);
        return 2;
    }
    try {
        std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", argv[1], mebibytes_of(all));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
