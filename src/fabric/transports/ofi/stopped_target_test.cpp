// A target that stands still while libfabric moves bytes from or to it, and goes on when nobody
// waits for it any more.
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/child_process.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;
using conformance::channel;
using conformance::child_process;

constexpr std::size_t size = 20'000'000;  // More than kernels keep for a connection.

/// Tells its address and the key of a region of 5s, and serves until it is told to end.
int serve(const std::string& where, channel& parent) {
    tcp_test_port here(transport_registry::installed().open(where).value());
    std::vector<std::byte> far(size, std::byte{5});
    const region shown = here.end->open_region(far, access::read_write).value();
    parent.say(here.end->address());
    const auto key = shown.key().encode();
    parent.say(std::string(reinterpret_cast<const char*>(key.data()), key.size()));
    bool over = false;
    move_until({&here}, [&] { return over = over || parent.overhear().has_value(); });
    return 0;
}

class ofi_stopped_target : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        const std::string where = GetParam();
        if (const auto opened = transport_registry::installed().open(where);
            opened.code() == errc::unsupported)
            GTEST_SKIP() << opened.sentence();
        target_.emplace([where](channel& parent) { return serve(where, parent); });
        address_ = target_->line().hear();
        const std::string wire = target_->line().hear();
        key_ = remote_key::decode(std::span<const std::byte, remote_key::wire_bytes>(
            reinterpret_cast<const std::byte*>(wire.data()), remote_key::wire_bytes));
        port_options options;
        options.silence_limit = std::chrono::milliseconds(300);
        here_.emplace(transport_registry::installed().open(where, options).value());
        meet();
    }
    void TearDown() override {
        if (!target_) return;
        here_.reset();
        target_->line().say("end");
        EXPECT_EQ(target_->join(), 0);
    }
    /// On return libfabric's key is known.
    void meet() {
        const std::uint64_t before = here_->end->transfers().direct;
        std::byte one{};
        for (status how{errc::unreachable}; here_->end->transfers().direct == before;) {
            // Which the target may not answer in time, on a busy machine.
            if (how == errc::unreachable) there_ = here_->look_up(address_);
            recorded op;
            get({&one, 1}, op);
            how = op.what;
            ASSERT_TRUE(how.ok() || how == errc::unreachable);
        }
    }
    void get(mutable_bytes into, recorded& op) {
        if (here_->end->post_get(there_, {&into, 1}, key_, 0, op) == posted::pending)
            move_until({&*here_}, [&] { return op.runs > 0; });
    }
    /// Stops the target with `op` under way, ends it, and lets the target go on.
    void end_and_go_on(recorded& op, std::vector<std::byte>& memory) {
        here_->end->progress();
        target_->freeze();
        here_->end->close(there_);
        move_until({&*here_}, [&] { return op.runs > 0; });
        EXPECT_EQ(op.what.code, errc::closed);
        std::fill(memory.begin(), memory.end(), std::byte{0x77});  // Ours again.
        target_->thaw();
        meet();  // Behind all that libfabric still moves.
    }

    std::optional<child_process> target_;
    std::optional<tcp_test_port> here_;
    std::string address_;
    remote_key key_;
    peer_id there_{};
};

TEST_P(ofi_stopped_target, get_writes_nothing_once_it_has_ended) {
    std::vector<std::byte> near(size, std::byte{1});
    const mutable_bytes into = near;
    recorded op;
    ASSERT_EQ(here_->end->post_get(there_, {&into, 1}, key_, 0, op), posted::pending);
    end_and_go_on(op, near);
    EXPECT_EQ(std::count(near.begin(), near.end(), std::byte{0x77}), static_cast<long>(size));
}

TEST_P(ofi_stopped_target, put_reads_nothing_once_it_has_ended) {
    std::vector<std::byte> near(size, std::byte{1}), back(size);
    const const_bytes from = near;
    recorded op, later;
    ASSERT_EQ(here_->end->post_put(there_, {&from, 1}, key_, 0, op), posted::pending);
    end_and_go_on(op, near);
    get(back, later);
    ASSERT_TRUE(later.what.ok());
    EXPECT_EQ(std::count(back.begin(), back.end(), std::byte{0x77}), 0);
}

INSTANTIATE_TEST_SUITE_P(ofi, ofi_stopped_target,
                         testing::Values("ofi+tcp://127.0.0.1:0?one_sided=any",
                                         "ofi+tcp://127.0.0.1:0?one_sided=any&mr_mode=basic,local",
                                         "ofi+sockets://127.0.0.1:0?one_sided=any",
                                         "ofi+sockets://127.0.0.1:0?one_sided=any&mr_mode=local"));

}  // namespace
}  // namespace amalgam::detail
