#include "flow/launcher/run_keys.hpp"

#include <string>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

flow_config config_of(std::vector<std::string> endpoints) {
    flow_config config;
    config.groups.push_back({.name = "G1", .endpoints = std::move(endpoints), .env = {}});
    return config;
}
std::string encrypted(const std::string& endpoint) {
    return with_keys(config_of({endpoint})).groups.front().endpoints.front();
}
std::string opened(const std::string& endpoint) {
    return without_keys(config_of({endpoint})).groups.front().endpoints.front();
}

TEST(run_keys, are_for_endpoints_that_other_hosts_may_reach) {
    EXPECT_EQ(encrypted("tcp://eth0:0"), "tcp+tls://eth0:0");
    EXPECT_EQ(encrypted("tcp://[::]:7000"), "tcp+tls://[::]:7000");
    EXPECT_EQ(encrypted("tcp://:7000"), "tcp+tls://:7000");
    EXPECT_EQ(encrypted("tcp+tls://10.0.0.5"), "tcp+tls://10.0.0.5");
    EXPECT_EQ(encrypted("ofi+tcp://eth0:0"), "ofi+tcp+tls://eth0:0");
    EXPECT_EQ(encrypted("ofi+tcp+tls://eth0:0"), "ofi+tcp+tls://eth0:0");
    EXPECT_EQ(encrypted("ofi+verbs;ofi_rxm://mlx5_0/10.0.0.5:0?one_sided=no"),
              "ofi+verbs;ofi_rxm+tls://mlx5_0/10.0.0.5:0?one_sided=no");
    EXPECT_EQ(encrypted("ucx+shm://eth0:0"), "ucx+shm+tls://eth0:0");
    EXPECT_EQ(encrypted("ucx+tcp://eth0:0?trusted_wire=yes"),
              "ucx+tcp+tls://eth0:0?trusted_wire=yes");
    for (const char* same :
         {"shm://", "tcp://", "tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://[::1]:0",
          "tcp://eth0:0?insecure=yes", "tcp+tls://eth0:0?credentials=lab", "ofi+tcp://",
          "ofi+tcp://127.0.0.1:0", "ofi+tcp://eth0:0?insecure=yes",
          "ofi+tcp://eth0:0?credentials=lab", "ucx+tcp://lo:0", "ucx+tcp://eth0:0?insecure=no",
          "mpi+static"})
        EXPECT_EQ(encrypted(same), same);
}

TEST(run_keys, are_made_only_where_an_endpoint_has_none) {
    EXPECT_TRUE(makes_keys(with_keys(config_of({"shm://", "tcp://eth0:0"}))));
    EXPECT_FALSE(makes_keys(with_keys(config_of({"shm://", "tcp://127.0.0.1:0", "mpi+static"}))));
    EXPECT_FALSE(makes_keys(config_of({"tcp+tls://eth0:0?credentials=lab"})));
    EXPECT_FALSE(makes_keys(config_of({"ofi+tcp+tls://eth0:0?credentials=lab", "ofi+tcp://"})));
    for (const char* each : {"ofi+tcp+tls://eth0:0", "tcp+tls://127.0.0.1:0", "mpi+static+tls"})
        EXPECT_TRUE(makes_keys(with_keys(config_of({each})))) << each;
}

TEST(run_keys, are_for_the_endpoints_beside_those_with_credentials_of_the_user) {
    const flow_config mixed =
        with_keys(config_of({"tcp+tls://eth0:0?credentials=lab", "tcp://eth0:0"}));
    EXPECT_EQ(mixed, config_of({"tcp+tls://eth0:0?credentials=lab", "tcp+tls://eth0:0"}));
    EXPECT_TRUE(makes_keys(mixed));
}

TEST(run_keys, and_credentials_of_the_user_are_each_shown_only_where_they_are_asked_for) {
    const std::string lab = "tcp+tls://eth0:0?credentials=lab", run = "tcp+tls://eth0:0";
    EXPECT_EQ(calling_port(run, lab), "tcp+tls://?credentials=lab");
    EXPECT_EQ(calling_port(lab, run), "tcp+tls://");
    EXPECT_EQ(calling_port("shm://", lab), "tcp+tls://?credentials=lab");
    EXPECT_EQ(calling_port("shm://", run), "tcp+tls://");
    // A key of another host is not here.
    EXPECT_EQ(calling_port("tcp+tls://eth0:0?credentials=node7", lab),
              "tcp+tls://?credentials=node7");
    // Nor is it one of another transport.
    EXPECT_EQ(calling_port("ofi+tcp+tls://eth0:0?credentials=node7", lab),
              "tcp+tls://?credentials=lab");
    EXPECT_EQ(calling_port(lab, "ofi+tcp+tls://eth0:0?credentials=node7"),
              "ofi+tcp+tls://?credentials=node7");

    const std::string address = "tcp+tls://10.0.0.5:7000";
    EXPECT_EQ(called_address({run}, run, address), address);
    EXPECT_EQ(called_address({lab}, lab, address + "?credentials=node7"), address);
    EXPECT_EQ(called_address({run, "tcp+tls://?credentials=lab"}, lab, address),
              address + "?credentials=lab");
    EXPECT_EQ(called_address({lab, "tcp+tls://"}, run, address), address + "?credentials=");
    EXPECT_EQ(called_address({lab, "tcp+tls://"}, "shm://x", "shm://x"), "shm://x");
    // The same of other transports.
    const std::string fast = "ofi+tcp+tls://10.0.0.5:7000", its = fast + "?credentials=lab";
    EXPECT_EQ(called_address({"ofi+tcp+tls://eth0:0?credentials=node7"}, its, its), fast);
    EXPECT_EQ(called_address({run, "ofi+tcp+tls://?credentials=lab"}, its, its), fast)
        << "there is one port for it";
    EXPECT_EQ(called_address({"ofi+tcp+tls://eth0:0", "ofi+tcp+tls://?credentials=lab"}, its, its),
              its);
    EXPECT_EQ(
        called_address({"ofi+tcp+tls://eth0:0?credentials=node7", "ofi+tcp+tls://"}, fast, fast),
        fast + "?credentials=");
}

TEST(run_keys, are_nothing_that_programs_of_fastflow_could_use) {
    flow_config config = config_of({"tcp://node7:8004"});
    config.stand_alone = true;
    EXPECT_EQ(with_keys(config), config);
}

TEST(run_keys, can_be_left_out_where_that_is_said) {
    EXPECT_EQ(opened("tcp://eth0:0"), "tcp://eth0:0?insecure=yes");
    EXPECT_EQ(opened("tcp+tls://eth0:0"), "tcp://eth0:0?insecure=yes");
    EXPECT_EQ(opened("ofi+tcp://eth0:0?one_sided=no"),
              "ofi+tcp://eth0:0?one_sided=no&insecure=yes");
    EXPECT_EQ(opened("ofi+tcp+tls://eth0:0"), "ofi+tcp://eth0:0?insecure=yes");
    for (const char* each :
         {"ucx+tcp+tls://eth0:0?trusted_wire=yes", "ucx+tcp://eth0:0?trusted_wire=yes"})
        EXPECT_EQ(opened(each), "ucx+tcp://eth0:0?insecure=yes") << each;
    for (const char* same :
         {"shm://", "tcp://127.0.0.1:0", "tcp://eth0:0?insecure=no",
          "tcp+tls://eth0:0?credentials=lab", "ofi+tcp+tls://eth0:0?credentials=lab"})
        EXPECT_EQ(opened(same), same);
}

}  // namespace
}  // namespace amalgam::detail
