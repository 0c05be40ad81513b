// Ports over libfabric without file descriptors, and forked with transfers under way.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/fabric/temporary_key.hpp>

#include "conformance/child_process.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "scarce_resources.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;
using conformance::channel;
using conformance::child_process;

/// With a key that all ports of this test have, where they encrypt.
result<std::unique_ptr<port>> open(const std::string& where) {
    port_options options;
    if (where.find("+tls") != where.npos) {
        static const temporary_key one("node");
        static const auto trust = one.trusting({one.fingerprint()});
        options.trust = trust;
    }
    return transport_registry::installed().open(where, options);
}

class ofi_exhaustion : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        const auto opened = open(GetParam());
        if (opened.code() == errc::unsupported) GTEST_SKIP() << opened.sentence();
    }
};

TEST_P(ofi_exhaustion, port_without_enough_descriptors_is_refused_with_a_word_about_the_limit) {
    child_process child([where = GetParam()](channel& parent) {
        EXPECT_TRUE(open(where));  // Loads all that it needs.
        std::size_t spare = 0;
        for (bool is_open = false; !is_open; ++spare) {
            const few_descriptors few(spare);
            const auto opened = open(where);
            is_open = static_cast<bool>(opened);
            if (is_open) break;
            EXPECT_EQ(opened.code(), errc::no_memory) << spare << ": " << opened.sentence();
            EXPECT_NE(opened.sentence().find("ulimit -n"), std::string::npos)
                << spare << ": " << opened.sentence();
        }
        EXPECT_GT(spare, 0u);
        EXPECT_TRUE(open(where));
        parent.say("");
        return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(child.join(), 0);
}

TEST_P(ofi_exhaustion, connection_without_descriptors_fails_and_later_ones_stand) {
    child_process child([where = GetParam()](channel& parent) {
        std::size_t failed = 0;
        for (std::size_t spare = 0; spare < 10; ++spare) {
            tcp_test_port here(open(where).value()), there(open(where).value());
            tcp_test_port::operation op;
            {
                const few_descriptors few(spare);
                const auto found = here.end->lookup(there.end->address());
                if (!found) {
                    EXPECT_EQ(found.code(), errc::no_memory) << found.sentence();
                    ++failed;
                } else if (here.post(*found, 1, "hello", op) == posted::pending) {
                    // A listener may also wait until it has one.
                    for (int rounds = 0; rounds < 2000 && !op.over; ++rounds) {
                        here.end->progress();
                        there.end->progress();
                    }
                    failed += here.lost.empty() ? 0 : 1;
                }
            }
            connect_again(here, there);
        }
        EXPECT_GT(failed, 0u);
        parent.say("");
        return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(child.join(), 0);
}

TEST_P(ofi_exhaustion, fork_with_transfers_under_way_leaves_them_to_the_parent) {
    constexpr std::size_t size = 5'000'000;
    tcp_test_port here(open(GetParam()).value()), there(open(GetParam()).value());
    const auto [to_there, to_here] = connect(here, there);
    std::vector<std::byte> far = pattern(size), back(size), near = pattern(size, 2);
    std::vector<std::byte> put_into(size);
    const region source = there.end->open_region(far, access::read).value();
    const region target = there.end->open_region(put_into, access::read_write).value();
    const mutable_bytes into = back;
    const const_bytes from = near;
    for (int i = 0; i < 3; ++i) {
        std::fill(back.begin(), back.end(), std::byte{});
        std::fill(put_into.begin(), put_into.end(), std::byte{});
        recorded get, put;
        const posted got = here.end->post_get(to_there, {&into, 1}, source.key(), 0, get);
        const posted gave = here.end->post_put(to_there, {&from, 1}, target.key(), 0, put);
        for (int round = 0; round < 10 * i; ++round) {
            here.end->progress();
            there.end->progress();
        }
        const pid_t child = ::fork();
        if (child == 0) {
            here.end.reset();
            there.end.reset();
            ::_exit(0);
        }
        int code = -1;
        ASSERT_EQ(::waitpid(child, &code, 0), child);
        EXPECT_EQ(code, 0);
        move_until({&here, &there}, [&] {
            return (got == posted::done || get.runs > 0) && (gave == posted::done || put.runs > 0);
        });
        EXPECT_TRUE(get.what.ok() && put.what.ok());
        EXPECT_EQ(back, far);
        EXPECT_EQ(put_into, near);
    }
}

INSTANTIATE_TEST_SUITE_P(ofi, ofi_exhaustion,
                         testing::Values("ofi+tcp://127.0.0.1:0",
                                         "ofi+tcp://127.0.0.1:0?one_sided=any",
                                         "ofi+tcp://127.0.0.1:0?one_sided=host",
                                         "ofi+sockets://127.0.0.1:0?one_sided=any",
                                         "ofi+tcp+tls://127.0.0.1:0",
                                         "ofi+tcp+tls://127.0.0.1:0?one_sided=host"));

}  // namespace
}  // namespace amalgam::detail
