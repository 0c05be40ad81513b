// HTTP over TLS, at addresses that other hosts reach, asked by curl.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>
#include <amalgam/rpc/metrics_server.hpp>

#include "contains.hpp"
#include "http_client.hpp"
#include "rpc/http/http_place.hpp"
#include "temp_folder.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

using detail::http_answer;
using detail::http_listener;
using detail::http_request;

bool there_is_curl() {
    return std::system("curl --version >/dev/null 2>&1") == 0;
}

class encrypted_http : public testing::Test {
protected:
    encrypted_http() {
        make_key(folder.with("lab"), {.name = "lab", .authority = true});
        add("node", key_algorithm::p256, {"127.0.0.1", "node.lab"});
    }
    std::string add(const std::string& name, key_algorithm of, std::vector<std::string> hosts) {
        make_key(folder.with(name), {.name = name, .hosts = std::move(hosts), .algorithm = of});
        sign_key(folder.with(name), folder.with("lab"));
        return folder.with(name);
    }
    std::string address(const std::string& more = "&token=") const {
        return "127.0.0.1:0?credentials=" + folder.with("node") +
               (more == "&token=" ? more + folder.with("token") : more);
    }
    std::string token() const {
        std::ifstream file(folder.with("token"));
        std::string line;
        std::getline(file, line);
        return line;
    }
    /// Output, with the status in its last line; curl's own complaint where it refuses.
    std::string curl(const std::string& url, const std::string& more = {}) const {
        const std::string command = "curl -sS -w '\\n%{http_code}' --cacert " + folder.with("lab") +
                                    "/certificate.pem " + more + " '" + url + "' 2>&1";
        std::FILE* const pipe = ::popen(command.c_str(), "r");
        std::string output;
        char part[4096];
        for (std::size_t n; pipe != nullptr && (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
            output.append(part, n);
        if (pipe != nullptr) ::pclose(pipe);
        return output;
    }
    static metric_snapshot one_number() {
        metric_writer all;
        all.add({"open", "Whether it is open."}, {}, 1);
        return all.take();
    }
    const temp_folder folder;
};

TEST_F(encrypted_http, answers_who_trusts_the_authority_and_has_the_token) {
    if (!there_is_curl()) GTEST_SKIP() << "curl is not installed";
    const metrics_server server(&encrypted_http::one_number, address());
    EXPECT_TRUE(server.url().starts_with("https://127.0.0.1:")) << server.url();
    const std::string right = "-H 'Authorization: Bearer " + token() + "'";
    const std::string told = curl(server.url(), right);
    EXPECT_TRUE(contains(told, "\nopen 1\n") && told.ends_with("\n200")) << told;
    const std::string renamed = curl(server.url(), right + " --http1.0 -I");
    EXPECT_TRUE(renamed.ends_with("\n200")) << renamed;
    for (const std::string& each :
         {std::string(), std::string("-H 'Authorization: Bearer 0123456789abcdef'"),
          "-H 'Authorization: Basic " + token() + "'", "-H 'X-Amalgam-Token: " + token() + "'"}) {
        const std::string refused = curl(server.url(), each);
        EXPECT_TRUE(refused.ends_with("\n401")) << refused;
        EXPECT_FALSE(contains(refused, "open 1")) << refused;
    }
    // Another authority's word is not believed.
    make_key(folder.with("other"), {.name = "other", .authority = true});
    const std::string unknown =
        curl(server.url(), right + " --cacert " + folder.with("other") + "/certificate.pem");
    EXPECT_TRUE(unknown.ends_with("\n000")) << unknown;
}

TEST_F(encrypted_http, tells_more_than_one_record_holds) {
    if (!there_is_curl()) GTEST_SKIP() << "curl is not installed";
    const std::string much(std::size_t{3} << 20, 'x');
    const http_listener listener(address(""),
                                 [&](const http_request&) { return http_answer{.body = much}; },
                                 {.has_own_token = true});
    EXPECT_EQ(curl(listener.origin() + "/"), much + "\n200");
}

TEST_F(encrypted_http, sends_a_stream_step_by_step) {
    if (!there_is_curl()) GTEST_SKIP() << "curl is not installed";
    const http_listener listener(address(""),
                                 [](const http_request&) {
                                     return http_answer{.more = [left = 3]() mutable {
                                         if (left == 0) throw error(errc::closed, "that was all");
                                         return "step " + std::to_string(left--) + "\n";
                                     }};
                                 },
                                 {.has_own_token = true});
    const std::string told = curl(listener.origin() + "/");
    EXPECT_TRUE(contains(told, "step 3\nstep 2\nstep 1\n")) << told;
}

TEST_F(encrypted_http, takes_a_renewed_certificate_while_it_runs) {
    if (!there_is_curl()) GTEST_SKIP() << "curl is not installed";
    const metrics_server server(&encrypted_http::one_number, address());
    const std::string right = "-v -H 'Authorization: Bearer " + token() + "'";
    const auto serial = [&] {
        const std::string said = curl(server.url(), right);
        const std::size_t at = said.find("start date:");
        EXPECT_TRUE(said.ends_with("\n200")) << said;
        return at == said.npos ? std::string() : said.substr(at, said.find('\n', at) - at);
    };
    const std::string before = serial();
    EXPECT_FALSE(before.empty());
    // A start date is of a second, so sign until it is another one.
    std::string now = before;
    while (now == before) {
        sign_key(folder.with("node"), folder.with("lab"), {.overwrite = true});
        now = serial();
    }
    EXPECT_FALSE(now.empty());
}

TEST_F(encrypted_http, tells_who_speaks_no_tls_and_goes_on) {
    const http_listener listener(address(""),
                                 [](const http_request&) { return http_answer{.body = "secret"}; },
                                 {.has_own_token = true});
    const std::string told = ask(listener.address(), "GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(contains(told, "this address is encrypted, expected https")) << told;
    EXPECT_FALSE(contains(told, "secret")) << told;
    for (const std::string& garbage :
         {std::string(300, '\0'), std::string("\x16\x03\x01\xff\xff") + std::string(9000, 'a'),
          std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10),
          std::string("\x15\x03\x03\x00\x02\x02\x28", 7)})
        EXPECT_FALSE(contains(ask(listener.address(), garbage), "secret"));
    if (there_is_curl()) {
        EXPECT_EQ(curl(listener.origin() + "/"), "secret\n200");
    }
}

TEST_F(encrypted_http, other_hosts_need_a_key_and_a_token) {
    const auto refused = [](const std::string& at) {
        return error_of([&] { const metrics_server no(&encrypted_http::one_number, at); });
    };
    const std::string key = "?credentials=" + folder.with("node");
    const std::string file = "token=" + folder.with("token");
    for (const std::string& at : {std::string(), key, "?" + file}) {
        const error why = refused("0.0.0.0:0" + at);
        EXPECT_EQ(why.code(), errc::denied) << why.what();
        EXPECT_TRUE(contains(why.what(), "\"0.0.0.0:0?credentials=node7&token=numbers.token\""))
            << why.what();
    }
    const metrics_server all(&encrypted_http::one_number, "0.0.0.0:0" + key + "&" + file);
    EXPECT_TRUE(all.url().starts_with("https://node.lab:")) << all.url();
    for (const char* bad : {"?credentials=", "?token", "?key=1", "?credentials=a&credentials=b"})
        EXPECT_EQ(refused(std::string("127.0.0.1:0") + bad).code(), errc::invalid) << bad;
}

TEST_F(encrypted_http, refuses_keys_that_its_clients_do_not_take) {
    const std::string elsewhere = add("modern", key_algorithm::ed25519, {"127.0.0.1"});
    const std::string silent = add("silent", key_algorithm::p256, {});
    make_key(folder.with("both"), {.name = "both", .shared = true});
    const auto refused = [&](const std::string& key, bool browsers) {
        return std::string(error_of([&] {
                               const http_listener no(
                                   "127.0.0.1:0?credentials=" + key,
                                   [](const http_request&) { return http_answer{}; },
                                   {.has_own_token = true, .for_browsers = browsers});
                           }).what());
    };
    EXPECT_TRUE(contains(refused(elsewhere, true), "which no browser takes"))
        << refused(elsewhere, true);
    EXPECT_TRUE(contains(refused(silent, false), "names no host")) << refused(silent, false);
    EXPECT_TRUE(contains(refused(folder.with("both"), false), "expected a certificate"));
    if (!there_is_curl()) return;
    const metrics_server server(&encrypted_http::one_number,
                                "127.0.0.1:0?credentials=" + elsewhere);
    EXPECT_TRUE(curl(server.url()).ends_with("\n200"));
}

TEST_F(encrypted_http, the_file_of_a_token_is_made_once_and_for_its_owner) {
    const std::string file = folder.with("token");
    const auto parsed = [&] {
        return detail::parse_http_place("127.0.0.1:0?token=" + file, false).token;
    };
    const std::string first = parsed();
    EXPECT_EQ(first.size(), 32u);
    EXPECT_EQ(parsed(), first);
    EXPECT_EQ(token(), first);
    struct ::stat about {};
    ASSERT_EQ(::stat(file.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);

    ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
    const error open = error_of(parsed);
    EXPECT_EQ(open.code(), errc::denied);
    EXPECT_TRUE(contains(open.what(), "example: chmod 600 ")) << open.what();
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
    for (const std::string& text :
         {std::string("short\n"), std::string("no spaces, please: none\n"), std::string(300, 'a'),
          std::string()}) {
        std::ofstream(file) << text;
        EXPECT_EQ(error_of(parsed).code(), errc::invalid) << text;
    }
    std::ofstream(file) << "0123456789abcdef\n";
    EXPECT_EQ(parsed(), "0123456789abcdef");
    ASSERT_EQ(::unlink(file.c_str()), 0);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_EQ(error_of(parsed).code(), errc::not_found);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3);
}

TEST_F(encrypted_http, a_token_keeps_other_users_out_at_a_loopback_address_too) {
    const metrics_server server(&encrypted_http::one_number,
                                "127.0.0.1:0?token=" + folder.with("token"));
    const std::string front = "GET /metrics HTTP/1.1\r\nHost: " + server.address() + "\r\n";
    const std::string without = ask(server.address(), front + "\r\n");
    EXPECT_TRUE(without.starts_with("HTTP/1.1 401 ")) << without;
    EXPECT_TRUE(contains(without, "WWW-Authenticate: Bearer\r\n")) << without;
    const std::string with =
        ask(server.address(), front + "authorization: bearer " + token() + "\r\n\r\n");
    EXPECT_TRUE(with.starts_with("HTTP/1.1 200 ")) << with;
}

}  // namespace
}  // namespace amalgam
