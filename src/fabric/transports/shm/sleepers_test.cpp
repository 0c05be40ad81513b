// Peers that stall while they copy from or to our memory.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <amalgam/core/log.hpp>

#include "conformance/child_process.hpp"
#include "emulated.hpp"
#include "fabric/transports/shm/raw_peer.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

port_options patient(std::chrono::milliseconds limit) {
    port_options options;
    options.silence_limit = limit;
    return options;
}

/// Counts log lines that contain a text, and runs a function for each.
class watched_log {
public:
    explicit watched_log(
        std::string part, std::function<void()> then = [] {}) {
        default_logger().set_sink(
            [this, part = std::move(part), then = std::move(then)](auto& line) {
                if (line.message.find(part) == line.message.npos) return;
                ++lines;
                then();
            });
    }
    ~watched_log() { default_logger().set_sink({}); }
    std::atomic<int> lines{0};
};

TEST(shm_sleepers, regions_that_a_peer_does_not_touch_close_at_once) {
    shm_test_port here("shm://", patient(24h));  // A wait that long is ended by the watchdog.
    shm_raw_peer peer(here.end().address());
    greet(peer, here);
    std::vector<std::byte> memory(64);
    region touched = here.end().open_region(memory, access::read_write).value();
    region another = here.end().open_region(memory, access::read_write).value();
    const std::uint64_t id = touched.key().region;
    for (const bool writes : {true, false}) {
        peer.words().touched.store(shm_touched::region(id, writes));
        peer.words().touching.fetch_add(1);
        another = here.end().open_region(memory, access::read_write).value();
        another = region();
        peer.words().touching.fetch_add(1);
    }
    another = here.end().open_region(memory, access::read_write).value();
    peer.words().touched.store(shm_touched::region(another.key().region, true));
    peer.words().touching.fetch_add(1);
    touched = region();
    peer.words().touching.fetch_add(1);
    here.progress();
    EXPECT_TRUE(here.losses.empty());
}

TEST(shm_sleepers, peer_that_stands_still_while_it_reads_is_waited_for_once) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    shm_test_port here("shm://", patient(500ms));
    shm_raw_peer peer(here.end().address());
    greet(peer, here);
    peer.write(frame_kind::unexpected, 0, {});
    move_until({&here}, [&] { return !here.tags.empty(); });
    std::vector<std::byte> memory(64);
    region target = here.end().open_region(memory, access::read_write).value();
    region other = here.end().open_region(memory, access::read_write).value();
    region last = here.end().open_region(memory, access::read_write).value();
    const watched_log said("stalled while it copied");
    peer.words().touched.store(shm_touched::region(target.key().region, false));
    peer.words().touching.fetch_add(1);
    target = region();
    EXPECT_EQ(said.lines, 1);
    EXPECT_NE(peer.words_of_port().closed.load(), 0u) << "it must not believe what it reads";
    peer.words().touched.store(shm_touched::region(other.key().region, false));
    other = region();
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(here.losses[0], errc::disconnected);
    EXPECT_EQ(here.losses[0].native, ETIMEDOUT);
    peer.words().touched.store(shm_touched::region(last.key().region, true));
    last = region();
    EXPECT_EQ(said.lines, 1) << "it was waited for once more";
    peer.wait_until_dropped();
}

TEST(shm_sleepers, peer_that_says_for_ever_that_it_writes_is_waited_for_once) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    shm_test_port here("shm://", patient(500ms));
    shm_raw_peer peer(here.end().address());
    greet(peer, here);
    std::vector<std::byte> memory(64);
    region target = here.end().open_region(memory, access::read_write).value();
    region other = here.end().open_region(memory, access::read_write).value();
    const watched_log said("stalled while it copied");
    peer.words().touched.store(shm_touched::region(target.key().region, true));
    peer.words().touching.fetch_add(1);
    target = region();  // Its process, which is ours, is not stopped.
    EXPECT_EQ(said.lines, 1);
    peer.words().touched.store(shm_touched::region(other.key().region, true));
    other = region();
    EXPECT_EQ(said.lines, 1);
}

/// A port with two regions, and a process stopped in the middle of a put to the first.
struct shm_stopped_writer : testing::Test {
    /// Memory that the process writes once it resumes.
    struct page {
        void* at = ::mmap(nullptr, shm_page_bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ~page() { ::munmap(at, shm_page_bytes); }
        mutable_bytes bytes() const { return {static_cast<std::byte*>(at), shm_page_bytes}; }
    } memory;
    child_process writer{[this](channel& parent) {
        shm_raw_peer peer(parent.hear());
        peer.greet();
        peer.write(frame_kind::unexpected, 0, {});
        peer.ring();
        peer.words().touched.store(shm_touched::region(std::stoull(parent.hear()), true));
        peer.words().touching.fetch_add(1);
        parent.say("writing");
        ::raise(SIGSTOP);
        memory.bytes()[0] = std::byte{1};
        peer.words().touching.fetch_add(1);
        parent.hear();
        return 0;
    }};
    shm_test_port here{"shm://", patient(500ms)};
    region target, other;

    void SetUp() override {
        if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
        writer.line().say(here.end().address());
        move_until({&here}, [&] { return !here.tags.empty(); });
        target = here.end().open_region(memory.bytes(), access::read_write).value();
        other = here.end().open_region(memory.bytes(), access::read_write).value();
        writer.line().say(std::to_string(target.key().region));
        EXPECT_EQ(writer.line().hear(), "writing");
        writer.wait_until_still();  // If we stopped it too, it would stop again on resuming.
    }
};

TEST_F(shm_stopped_writer, holds_up_its_region_until_it_goes_on_and_no_other) {
    const watched_log said("was stopped while it wrote", [&] { writer.thaw(); });
    other = region();
    EXPECT_EQ(said.lines, 0);
    target = region();
    EXPECT_EQ(said.lines, 1);
    EXPECT_EQ(memory.bytes()[0], std::byte{1}) << "it writes after the region was closed";
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(here.losses[0].native, ETIMEDOUT);
    target = here.end().open_region(memory.bytes(), access::read_write).value();
    target = region();
    EXPECT_EQ(said.lines, 1);
    writer.kill();
}

TEST_F(shm_stopped_writer, is_known_after_the_end_of_its_connection) {
    here.end().close(here.from);
    while (here.progress() > 0) {
    }
    const watched_log said("was stopped while it wrote", [&] { writer.thaw(); });
    other = region();
    EXPECT_EQ(said.lines, 0);
    target = region();
    EXPECT_EQ(said.lines, 1);
    EXPECT_EQ(memory.bytes()[0], std::byte{1});
    writer.kill();
}

TEST_F(shm_stopped_writer, holds_up_nothing_once_it_is_killed) {
    const watched_log said("was stopped while it wrote", [&] { writer.kill(); });
    target = region();
    EXPECT_EQ(said.lines, 1);
    EXPECT_EQ(memory.bytes()[0], std::byte{0});
}

}  // namespace
}  // namespace amalgam::detail
