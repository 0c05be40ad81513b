#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>

#include "conformance/child_process.hpp"
#include "thrown.hpp"

// Owners of memory that are stopped processes, with engine_options::keepalive.
namespace amalgam {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

constexpr std::size_t memory_bytes = std::size_t{8} << 20;
constexpr keepalive_options watchful{.interval = 20ms, .timeout = 1s};

class stopped_owner : public testing::TestWithParam<const char*> {
protected:
    stopped_owner()
        : client_(std::string_view(GetParam()).starts_with("shm") ? "shm://" : "tcp://",
                  {.drain = 10ms, .keepalive = watchful}) {}

    static int own(channel& parent) {
        std::vector<std::byte> memory(memory_bytes);
        engine here{GetParam(), {.drain = 10ms, .keepalive = watchful}};
        const copy_service copies(here);
        const exposed shown = expose(here, memory, access::read_write);
        here.define("memory", [&] { return shown.descriptor(); });
        parent.say(here.address());
        (void)parent.hear();
        return 0;
    }
    bulk memory_of(child_process& owner) {
        return client_.procedure<bulk()>("memory").on(owner.line().hear())();
    }

    // Forked before any ULT runs.
    child_process first_{&stopped_owner::own}, second_{&stopped_owner::own};
    engine client_;
};

INSTANTIATE_TEST_SUITE_P(shm, stopped_owner, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, stopped_owner, testing::Values("tcp://127.0.0.1:0"));

/// Shared memory is moved by this process alone: a stopped owner is in nobody's way.
void expect_moved_or_named(bool by_messages, future<void>& transfer) {
    if (!by_messages && transfer.wait().ok()) return;
    const error why = error_of([&] { transfer.get(); });
    EXPECT_EQ(why.code(), errc::disconnected) << why.what();
    EXPECT_NE(std::string(why.what()).find("did not answer pings within keepalive.timeout"),
              std::string::npos)
        << why.what();
}

TEST_P(stopped_owner, transfers_with_it_end) {
    const bool by_messages = std::string_view(GetParam()).starts_with("tcp");
    const bulk far = memory_of(first_);
    std::vector<std::byte> pulled(memory_bytes), pushed(memory_bytes);
    first_.freeze();
    future<void> pull = far.start_pull(pulled);
    future<void> push = far.start_push(pushed);
    expect_moved_or_named(by_messages, pull);
    expect_moved_or_named(by_messages, push);
    first_.thaw();
}

TEST_P(stopped_owner, a_copy_between_two_ends) {
    const bulk from = memory_of(first_), to = memory_of(second_);
    EXPECT_EQ(copy(client_, from, to), copied_by::target);
    for (child_process* stopped : {&first_, &second_}) {
        stopped->freeze();
        future<copied_by> copying = start_copy(client_, from, to);
        const status how = copying.wait();
        EXPECT_TRUE(how.ok() || how == errc::disconnected) << name(how.code);
        stopped->thaw();
    }
}

}  // namespace
}  // namespace amalgam
