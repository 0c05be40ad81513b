#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>

#include "thrown.hpp"

namespace amalgam {

/// A server and a client on a virtual-time network.
struct loop_pair {
    explicit loop_pair(const loop_options& network = {}) : net(network) {}

    loop_network net;
    engine server{net.port("server")};
    engine client{net.port("client")};

    /// Runs `work` as a ULT of the client, until the network is idle.
    template <typename Work>
    auto in_client(Work work) {
        auto done = client.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    peer there() { return client.lookup(server.address()); }
};

inline std::map<std::string, std::uint64_t> counters_of(engine& which) {
    std::map<std::string, std::uint64_t> all;
    for (const counter_value& each : which.counters().snapshot())
        all[each.name] = each.value;
    return all;
}

}  // namespace amalgam
