#pragma once

#include <atomic>
#include <functional>
#include <ostream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/tasklet.hpp>

namespace amalgam {

/// Where nobody can wait: on the own stack of a stream.
enum class cannot_wait { in_call_then, in_an_inline_handler, in_a_tasklet };

inline std::string name_of(const testing::TestParamInfo<cannot_wait>& which) {
    constexpr const char* names[] = {"in_call_then", "in_an_inline_handler", "in_a_tasklet"};
    return names[static_cast<int>(which.param)];
}

inline const auto all_that_cannot_wait = testing::Values(
    cannot_wait::in_call_then, cannot_wait::in_an_inline_handler, cannot_wait::in_a_tasklet);

/// Two engines that have nothing to do with what is tested, and whose streams run code of it.
struct other_engines {
    engine server{"shm://"}, client{"shm://"};

    /// Returns when `work` has.
    void run(cannot_wait where, const std::function<void()>& work) {
        std::atomic<bool> done{false};
        const auto all = [&] {
            work();
            done = true;
        };
        const peer there = client.lookup(server.address());
        if (where == cannot_wait::in_call_then) {
            client.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")
                .on(there)
                .call_then([&](const result<std::uint64_t>&) { all(); }, 1);
        } else if (where == cannot_wait::in_an_inline_handler) {
            server.define("run", all, {.run = handler::inline_});
            client.procedure<void()>("run").on(there)();
            server.undefine("run");
        } else {
            spawn_tasklet(server.stream(), all).join();
        }
        while (!done)
            std::this_thread::yield();
    }
};

/// What was handed over to the engine's stream before has run there.
inline void await_stream(engine& which) {
    which.undefine("nothing of this name");
}

}  // namespace amalgam
