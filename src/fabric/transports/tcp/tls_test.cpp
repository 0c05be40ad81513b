#include <gtest/gtest.h>

#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/transports/tcp/tls_raw_peer.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

class tls : public testing::Test {
protected:
    port_options with(port_options options = {}) const {
        options.trust = lab_.trust;
        return options;
    }

    test_lab lab_;
};

TEST_F(tls, messages_of_any_size_arrive_in_order) {
    tcp_test_port here("tcp+tls://127.0.0.1:0", with()), there("tcp+tls://127.0.0.1:0", with());
    const auto [to, back] = connect(here, there);
    EXPECT_EQ(here.end->address().substr(0, 20), "tcp+tls://127.0.0.1:");
    for (std::size_t bytes : {0u, 1u, 300u, 5000u, 16'384u, 100'000u, 10'000'000u}) {
        tcp_test_port::operation op;
        const std::string text(bytes, 'g');
        const posted how = here.post(to, bytes, text, op);
        move_until({&here, &there},
                   [&] { return !there.arrived.empty() && (op.over || how == posted::done); });
        EXPECT_EQ(there.arrived.front().text.size(), bytes);
        EXPECT_TRUE(there.arrived.front().text == text);
        there.arrived.clear();
    }
}

}  // namespace
}  // namespace amalgam::detail
