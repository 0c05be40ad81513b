#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/one_sided/device_port_testing.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {

/// Two ports over devices in memory, and a region of the second one.
class one_sided_test : public testing::Test {
protected:
    using recorded = testing_support::recorded;
    static constexpr std::size_t size = 3 * 4096 + 100;  // Four pieces.

    void open(const port_options& options = {}) {
        options_ = options;
        a_ = std::make_unique<tcp_test_port>(open_device_port(device_a_, options));
        b_ = std::make_unique<tcp_test_port>(open_device_port(device_b_, options));
        there_ = connect(*a_, *b_).first;
    }
    void expose(access rights = access::read_write) {
        far_ = std::vector<std::byte>(size);
        region_ = b_->end->open_region(far_, rights).value();
        key_ = region_.key();
    }
    void both_until(const std::function<bool()>& reached) {
        move_until({a_.get(), b_.get()}, reached);
    }
    void a_until(const std::function<bool()>& reached) {
        while (!reached())
            a_->end->progress();
    }
    posted put(const_bytes from, recorded& op, std::uint64_t offset = 0) {
        from_ = from;
        return a_->end->post_put(there_, {&from_, 1}, key_, offset, op);
    }
    posted get(mutable_bytes into, recorded& op, std::uint64_t offset = 0) {
        into_ = into;
        return a_->end->post_get(there_, {&into_, 1}, key_, offset, op);
    }
    /// The first transfer, by messages; on return the device's key is known.
    void warm_up() {
        recorded op;
        std::byte one{};
        EXPECT_EQ(get({&one, 1}, op), posted::pending);
        both_until([&] { return op.runs > 0 && device_a_.opened == device_b_.exposures; });
        EXPECT_TRUE(op.ended_with(errc::ok));
        EXPECT_EQ(device_a_.started, 0u);
    }
    void prepare(access rights = access::read_write, const port_options& options = {}) {
        open(options);
        expose(rights);
        warm_up();
    }

    memory_device::settings device_a_, device_b_;
    port_options options_;
    std::unique_ptr<tcp_test_port> a_, b_;
    peer_id there_{};
    std::vector<std::byte> far_;
    region region_;
    remote_key key_;
    const_bytes from_;
    mutable_bytes into_;
    std::vector<std::byte> near_ = testing_support::pattern(size);
};

}  // namespace amalgam::detail
