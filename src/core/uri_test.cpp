#include <string>

#include <gtest/gtest.h>

#include <amalgam/core/uri.hpp>

namespace amalgam {
namespace {

std::string sentence_of(std::string_view text) {
    auto parsed = parse_uri(text);
    EXPECT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.code().code, errc::invalid);
    return parsed.sentence();
}

TEST(uri, reads_loop) {
    uri u = uri::parse("loop://server-1");
    EXPECT_EQ(u.scheme, "loop");
    EXPECT_EQ(u.name, "server-1");
    EXPECT_FALSE(u.port);
}

TEST(uri, reads_shared_memory_with_and_without_a_name) {
    EXPECT_EQ(uri::parse("shm://").name, "");
    EXPECT_EQ(uri::parse("shm://jobs.7").name, "jobs.7");
}

TEST(uri, alias_of_mercury_means_shared_memory) {
    EXPECT_EQ(uri::parse("na+sm://"), uri::parse("shm://"));
    EXPECT_EQ(to_string(uri::parse("na+sm://x")), "shm://x");
}

TEST(uri, reads_tcp_with_host_and_port) {
    uri u = uri::parse("tcp://node-3.example.org:7000");
    EXPECT_EQ(u.scheme, "tcp");
    EXPECT_EQ(u.host, "node-3.example.org");
    EXPECT_EQ(u.port, 7000);
    EXPECT_TRUE(u.protocol.empty() && u.device.empty() && u.name.empty() && u.options.empty());
}

TEST(uri, each_part_of_a_tcp_address_may_be_left_out) {
    EXPECT_EQ(uri::parse("tcp://").host, "");
    EXPECT_EQ(uri::parse("tcp://").port, std::nullopt);
    EXPECT_EQ(uri::parse("tcp://:80").host, "");
    EXPECT_EQ(uri::parse("tcp://:80").port, 80);
    EXPECT_EQ(uri::parse("tcp://eth0").host, "eth0");
    EXPECT_EQ(uri::parse("tcp://eth0").port, std::nullopt);
    EXPECT_EQ(uri::parse("tcp://eth0:"), uri::parse("tcp://eth0"));
    EXPECT_EQ(uri::parse("tcp://:"), uri::parse("tcp://"));
}

TEST(uri, port_zero_is_not_the_same_as_none) {
    EXPECT_EQ(uri::parse("tcp://127.0.0.1:0").port, 0);
    EXPECT_NE(uri::parse("tcp://127.0.0.1:0"), uri::parse("tcp://127.0.0.1"));
}

TEST(uri, reads_ipv6_in_brackets) {
    uri u = uri::parse("tcp://[::1]:80");
    EXPECT_EQ(u.host, "::1");
    EXPECT_EQ(u.port, 80);
    EXPECT_EQ(to_string(u), "tcp://[::1]:80");
    EXPECT_EQ(uri::parse("tcp://[fe80::1%eth0]").host, "fe80::1%eth0");
    EXPECT_EQ(to_string(uri::parse("tcp://[2001:DB8:0:0:0:0:0:1]")), "tcp://[2001:db8::1]");
}

TEST(uri, reads_tcp_with_and_without_tls) {
    uri u = uri::parse("tcp+tls://node7:7000?credentials=lab");
    EXPECT_EQ(u.scheme, "tcp");
    EXPECT_EQ(u.protocol, "tls");
    EXPECT_EQ(u.host, "node7");
    EXPECT_EQ(u.port, 7000);
    EXPECT_EQ(to_string(u), "tcp+tls://node7:7000?credentials=lab");
    EXPECT_EQ(uri::parse("tcp://node7:7000").protocol, "");
    EXPECT_EQ(transport_of(u), "tcp+tls");
    EXPECT_EQ(transport_of(uri::parse("tcp://node7:7000")), "tcp");
    EXPECT_EQ(transport_of(uri::parse("ucx+tcp://node7:7000")), "ucx");
    EXPECT_EQ(client_uri(u), "tcp+tls://?credentials=lab");
    EXPECT_EQ(client_uri(uri::parse("tcp+tls://node7:7000")), "tcp+tls://");
}

TEST(uri, a_protocol_that_ends_in_tls_is_one_of_an_encrypted_transport) {
    const uri u = uri::parse("ofi+tcp+tls://node7:7000?one_sided=no&credentials=lab");
    EXPECT_EQ(u.scheme, "ofi");
    EXPECT_EQ(u.protocol, "tcp+tls");
    EXPECT_EQ(to_string(u), "ofi+tcp+tls://node7:7000?one_sided=no&credentials=lab");
    EXPECT_EQ(transport_of(u), "ofi+tls");
    EXPECT_EQ(transport_of(uri::parse("ofi+tls://node7:7000")), "ofi");
    EXPECT_EQ(client_uri(u), "ofi+tcp+tls://?credentials=lab");
    EXPECT_EQ(client_uri(uri::parse("ucx+tcp+tls://127.0.0.1:7?credentials=lab&trusted_wire=yes")),
              "ucx+tcp+tls://lo/?credentials=lab&trusted_wire=yes");
    EXPECT_EQ(transport_of(uri::parse("ucx+tcp+tls://")), "ucx+tls");
    const uri rank = uri::parse("mpi+static+tls://1:2?credentials=lab");
    EXPECT_EQ(rank.protocol, "static+tls");
    EXPECT_EQ(rank.host, "1");
    EXPECT_EQ(transport_of(rank), "mpi+tls");
    EXPECT_EQ(client_uri(rank), "mpi+static+tls://?credentials=lab");
    EXPECT_EQ(to_string(uri::parse("mpi+static+tls?credentials=lab")),
              "mpi+static+tls?credentials=lab");
}

TEST(uri, reads_ucx_and_ofi_with_device_and_domain) {
    uri u = uri::parse("ucx+rc://mlx5_0:1/10.0.0.1:7000");
    EXPECT_EQ(u.scheme, "ucx");
    EXPECT_EQ(u.protocol, "rc");
    EXPECT_EQ(u.device, "mlx5_0:1");
    EXPECT_EQ(u.host, "10.0.0.1");
    EXPECT_EQ(u.port, 7000);
    uri v = uri::parse("ofi+verbs;ofi_rxm://mlx5_0/[::1]:7000");
    EXPECT_EQ(v.scheme, "ofi");
    EXPECT_EQ(v.protocol, "verbs;ofi_rxm");
    EXPECT_EQ(v.device, "mlx5_0");
    EXPECT_EQ(v.host, "::1");
    EXPECT_EQ(uri::parse("ucx+all://").protocol, "all");
}

TEST(uri, reads_mpi_with_or_without_slashes) {
    EXPECT_EQ(uri::parse("mpi+dynamic").protocol, "dynamic");
    EXPECT_EQ(uri::parse("mpi+static://"), uri::parse("mpi+static"));
    EXPECT_EQ(to_string(uri::parse("mpi+static://")), "mpi+static");
}

TEST(uri, reads_a_rank_and_which_of_its_ports) {
    EXPECT_EQ(uri::parse("mpi+static://12").host, "12");
    EXPECT_EQ(uri::parse("mpi+static://12").port, std::nullopt);
    EXPECT_EQ(uri::parse("mpi+static://012:3").port, 3);
    EXPECT_EQ(to_string(uri::parse("mpi+static://012:3")), "mpi+static://12:3");
}

TEST(uri, keeps_what_an_unknown_transport_will_read) {
    uri u = uri::parse("unix:///run/job.sock");
    EXPECT_EQ(u.scheme, "unix");
    EXPECT_EQ(u.name, "/run/job.sock");
    EXPECT_EQ(uri::parse("rdma+ib://[a]:b:c").protocol, "ib");
    EXPECT_EQ(uri::parse("rdma+ib://[a]:b:c").name, "[a]:b:c");
}

TEST(uri, reads_options_in_order) {
    uri u = uri::parse("tcp://h:1?nodelay=no&path=/a=b");
    ASSERT_EQ(u.options.size(), 2u);
    EXPECT_EQ(u.option("nodelay"), "no");
    EXPECT_EQ(u.option("path"), "/a=b");
    EXPECT_EQ(u.option("absent"), std::nullopt);
    EXPECT_EQ(to_string(u), "tcp://h:1?nodelay=no&path=/a=b");
}

TEST(uri, scheme_is_canonical_in_lower_case) {
    EXPECT_EQ(to_string(uri::parse("TCP://Host:1")), "tcp://Host:1");
}

TEST(uri, wrong_port_is_told_in_one_sentence) {
    EXPECT_EQ(sentence_of("tcp://127.0.0.1:99999"),
              "uri \"tcp://127.0.0.1:99999\": the port \"99999\" is not a number from 0 to 65535; "
              "example: tcp://127.0.0.1:7000");
}

TEST(uri, missing_part_is_told_in_one_sentence) {
    EXPECT_EQ(sentence_of("loop://"),
              "uri \"loop://\": the name is missing, expected loop://NAME; example: loop://server");
}

TEST(uri, part_too_many_is_told_in_one_sentence) {
    EXPECT_EQ(sentence_of("tcp://h:1/x"),
              "uri \"tcp://h:1/x\": unexpected path \"/x\", expected tcp://[HOST][:PORT]; example: "
              "tcp://127.0.0.1:7000");
}

struct refused {
    const char* text;
    const char* part;  ///< The error expected in the sentence.
};

constexpr refused every_part[] = {
    {"", "the scheme is missing"},
    {"://x", "the scheme is missing"},
    {"tcp", "the \"://\" is missing"},
    {"tcp:/h:1", "scheme \"tcp:/h:1\""},
    {"127.0.0.1:80", "scheme \"127.0.0.1:80\""},
    {"t cp://", "scheme \"t cp\""},
    {"tcp+x://", "protocol \"+x\""},
    {"tcp+://", "protocol \"+\""},
    {"shm+sm://", "protocol \"+sm\""},
    {"na+sm", "the \"://\" is missing"},
    {"na://", "the protocol is missing"},
    {"na+tcp://", "protocol \"tcp\""},
    {"loop://a b", "name \"a b\""},
    {"loop://a/b", "name \"a/b\""},
    {"shm://../x", "name \"../x\""},
    {"tcp://h:x", "port \"x\""},
    {"tcp://h:-1", "port \"-1\""},
    {"tcp://h:+1", "port \"+1\""},
    {"tcp://h:65536", "port \"65536\""},
    {"tcp://h:1 ", "port \"1 \""},
    {"tcp://256.0.0.1:1", "host \"256.0.0.1\""},
    {"tcp://1.2.3:1", "host \"1.2.3\""},
    {"tcp://a..b", "host \"a..b\""},
    {"tcp://a_b@c", "host \"a_b@c\""},
    {"tcp://::1:80", "needs brackets"},
    {"tcp://[::1", "the \"]\" is missing"},
    {"tcp://[::g]", "host \"::g\""},
    {"tcp://[]:1", "host \"\""},
    {"tcp://[::1]80", "after \"]\" \"80\""},
    {"tcp://[fe80::1%]", "the zone is missing"},
    {"tcp://[fe80::1%a/b]", "path \"/b]\""},
    {"tcp://[fe80::1%0123456789abcdef]", "zone \"0123456789abcdef\""},
    {"tcp://h:1/", "path \"/\""},
    {"ucx://h:1", "the protocol is missing"},
    {"ucx+://h:1", "the protocol is missing"},
    {"ucx++tls://h:1", "protocol \"+tls\""},
    {"ucx+tls+tcp://h:1", "protocol \"tls+tcp\""},
    {"mpi+other+tls", "protocol \"other+tls\""},
    {"ucx+tc p://h:1", "protocol \"tc p\""},
    {"ucx+tcp:///h:1", "the device is missing"},
    {"ofi+tcp:///h:1", "the domain is missing"},
    {"ucx+tcp://a/b/c:1", "path \"/c:1\""},
    {"ucx+tcp://d v/h:1", "device \"d v\""},
    {"mpi", "the protocol is missing"},
    {"mpi+other", "protocol \"other\""},
    {"mpi+static://x", "rank \"x\""},
    {"mpi+static://-1", "rank \"-1\""},
    {"mpi+static://:1", "rank \"\""},
    {"mpi+static://99999999999", "rank \"99999999999\""},
    {"mpi+static://1:x", "port \"x\""},
    {"mpi+dynamic://1", "address \"1\""},
    {"unix:// x", "address \" x\""},
    {"tcp://h:1?", "the option is missing"},
    {"tcp://h:1?a", "option \"a\""},
    {"tcp://h:1?=b", "option \"=b\""},
    {"tcp://h:1?a=b&", "the option is missing"},
    {"tcp://h:1?a=b&a=c", "option \"a\" is not given once"},
    {"tcp://h:1?a=b c", "value \"b c\""},
};

TEST(uri, refusal_names_the_part_and_gives_an_example_that_parses) {
    for (auto [text, part] : every_part) {
        std::string sentence = sentence_of(text);
        EXPECT_NE(sentence.find(part), sentence.npos) << sentence;
        EXPECT_EQ(sentence.find('\n'), sentence.npos);
        std::string mark = "; example: ";
        std::size_t example = sentence.rfind(mark);
        ASSERT_NE(example, sentence.npos) << sentence;
        EXPECT_TRUE(parse_uri(sentence.substr(example + mark.size())).ok()) << sentence;
    }
}

TEST(uri, sentence_shows_control_bytes_and_shortens_long_texts) {
    std::string sentence = sentence_of("tcp://a\nb:1");
    EXPECT_NE(sentence.find("host \"a\\x0ab\""), sentence.npos) << sentence;
    EXPECT_LT(sentence_of("loop://" + std::string(1900, 'x')).size(), 400u);
}

TEST(uri, embedded_zero_byte_does_not_end_the_host) {
    using namespace std::string_view_literals;
    EXPECT_FALSE(parse_uri("tcp://127.0.0.1\0:1"sv).ok());
    EXPECT_FALSE(parse_uri("tcp://[::1\0]:1"sv).ok());
}

TEST(uri, length_name_and_option_limits_hold) {
    EXPECT_TRUE(parse_uri("unix://" + std::string(uri::max_bytes - 7, 'x')).ok());
    EXPECT_FALSE(parse_uri("unix://" + std::string(uri::max_bytes - 6, 'x')).ok());
    EXPECT_TRUE(parse_uri("shm://" + std::string(uri::max_name_bytes, 'x')).ok());
    EXPECT_FALSE(parse_uri("shm://" + std::string(uri::max_name_bytes + 1, 'x')).ok());
    std::string options = "shm://?o=1";
    for (std::size_t i = 1; i < uri::max_option_count; ++i) {
        options += "&o" + std::to_string(i) + "=1";
    }
    EXPECT_TRUE(parse_uri(options).ok());
    EXPECT_FALSE(parse_uri(options + "&last=1").ok());
}

TEST(uri, a_client_of_an_address_does_not_listen) {
    EXPECT_EQ(client_uri(uri::parse("tcp://node7:7000")), "tcp://");
    EXPECT_EQ(client_uri(uri::parse("shm://name")), "shm://");
    EXPECT_EQ(client_uri(uri::parse("tcp://node7:7000?insecure=yes")), "tcp://");
    EXPECT_EQ(client_uri(uri::parse("shm://name?uid=7")), "shm://?users=7");
    EXPECT_EQ(client_uri(uri::parse("ucx+tcp://node7:7000?a=1")), "ucx+tcp://");
    EXPECT_EQ(client_uri(uri::parse("ucx+tcp://node7:7000?a=1&insecure=yes")),
              "ucx+tcp://?insecure=yes");
    for (const char* loopback : {"127.0.0.1", "[::1]", "localhost", "lo", "127.1.2.3"})
        EXPECT_EQ(client_uri(uri::parse("ucx+tcp://" + std::string(loopback) + ":7")),
                  "ucx+tcp://lo/");
    EXPECT_EQ(client_uri(uri::parse("ucx+tcp://127.lab:7")), "ucx+tcp://");
}

TEST(uri, an_option_can_be_left_out) {
    const uri there = uri::parse("tcp://h:1?a=1&b=2&c=3");
    EXPECT_EQ(to_string(without_option(there, "b")), "tcp://h:1?a=1&c=3");
    EXPECT_EQ(without_option(there, "d"), there);
}

TEST(uri, parse_throws_the_sentence) {
    try {
        uri::parse("tcp://h:x");
        FAIL() << "no throw";
    } catch (const error& wrong) {
        EXPECT_EQ(wrong.code().code, errc::invalid);
        EXPECT_EQ(wrong.what(), parse_uri("tcp://h:x").sentence());
    }
}

}  // namespace
}  // namespace amalgam
