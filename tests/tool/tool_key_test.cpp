// `amalgam key` as a user types it, and the openssl command as the judge.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "contains.hpp"
#include "shell_word.hpp"
#include "temp_folder.hpp"
#include "tool/json_lines.hpp"
#include "tool/run_tool.hpp"

namespace amalgam::tool_testing {
namespace {

namespace files = std::filesystem;

/// A home of its own, without keys.
class tool_key : public testing::Test {
protected:
    void SetUp() override {
        if (run_tool("openssl", "version").code != 0)
            GTEST_SKIP() << "the openssl command is not installed";
    }
    outcome key(const std::string& arguments) {
        return run_tool("cd " + home.path() + " && HOME=" + home.path() +
                            " XDG_CONFIG_HOME= " + shell_word(AMALGAM_TOOL) + " key",
                        arguments);
    }
    /// The same, which must succeed.
    std::string done(const std::string& arguments) {
        const outcome got = key(arguments);
        EXPECT_EQ(got.code, 0) << arguments << "\n" << got.output;
        return got.output;
    }
    outcome openssl(const std::string& arguments) { return run_tool("openssl", arguments); }
    std::string at(const std::string& name) const {
        return home.with(".config/amalgam/keys/" + name);
    }
    outcome verify(const std::string& name) {
        return openssl("verify -x509_strict -crl_check -CAfile " + at(name) +
                       "/authority.pem -CRLfile " + at(name) + "/revoked.pem " + at(name) +
                       "/certificate.pem");
    }

    const temp_folder home;
};

TEST_F(tool_key, three_commands_give_a_lab_that_openssl_verifies) {
    const std::string first = done("new lab --authority");
    EXPECT_TRUE(contains(first, "made the authority lab in " + at("lab"))) << first;
    const std::string second =
        done("new node7 --host node7.lab --host 10.0.0.7 --group compute --with lab");
    EXPECT_TRUE(
        contains(second, "certified node7: hosts node7.lab, 10.0.0.7; groups compute; until"))
        << second;
    EXPECT_TRUE(contains(second, "tcp+tls://HOST:PORT?credentials=node7")) << second;
    done("new node8 --host 10.0.0.8 --with lab --days 30 --p256");
    for (const char* each : {"node7", "node8"}) {
        const outcome got = verify(each);
        EXPECT_EQ(got.code, 0) << got.output;
    }
    struct stat about {};
    ASSERT_EQ(::stat((at("node7") + "/key.pem").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777, 0600u);
    ASSERT_EQ(::stat(at("node7").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777, 0700u);
}

TEST_F(tool_key, a_request_travels_to_the_authority_and_the_certificate_back) {
    done("new ./there/node9 --host 10.0.0.9 --group compute");
    done("new ./here/lab --authority");
    const std::string asked = done("show there/node9/request.pem");
    EXPECT_TRUE(contains(asked, "hosts        10.0.0.9")) << asked;
    done("sign there/node9/request.pem --with ./here/lab --no-groups -o ./back");
    const std::string shown = done("show back/certificate.pem");
    EXPECT_TRUE(contains(shown, "name         node9")) << shown;
    EXPECT_TRUE(contains(shown, "groups       none")) << shown;
    EXPECT_TRUE(contains(shown, "certified by CN=lab")) << shown;
    EXPECT_TRUE(files::exists(home.with("back/authority.pem")));
    EXPECT_FALSE(files::exists(home.with("there/node9/certificate.pem")));
}

TEST_F(tool_key, a_revoked_key_is_refused_by_who_has_the_list) {
    done("new lab --authority");
    done("new node7 --with lab");
    done("new node8 --with lab");
    const std::string told = done("revoke node7 --with lab");
    EXPECT_TRUE(contains(told, at("lab") + "/revoked.pem")) << told;
    done("trust node7 lab");
    done("trust node8 " + at("lab") + "/revoked.pem");
    EXPECT_TRUE(contains(verify("node7").output, "certificate revoked"));
    EXPECT_EQ(verify("node8").code, 0);
    const std::string list = done("show lab");
    const std::string serial =
        openssl("x509 -noout -serial -in " + at("node7") + "/certificate.pem").output.substr(7, 32);
    EXPECT_TRUE(contains(list, "revoked      " + serial)) << list;
}

TEST_F(tool_key, a_shared_key_is_made_accepted_shown_and_removed) {
    const std::string made = done("new node7 --shared");
    EXPECT_TRUE(contains(made, "made the pre-shared key node7 in " + at("node7"))) << made;
    struct stat about {};
    ASSERT_EQ(::stat((at("node7") + "/shared.keys").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777, 0600u);
    done("new --shared alice");
    EXPECT_TRUE(contains(done("trust node7 alice"), "accepts the pre-shared key alice"));
    const std::string shown = done("show node7");
    EXPECT_TRUE(contains(shown, "node7, 256 bits") && contains(shown, "alice, 256 bits")) << shown;
    EXPECT_TRUE(contains(done("revoke alice --with node7"), "no longer accepts"));
    EXPECT_FALSE(contains(done("show node7"), "alice"));
    for (const char* line : {"new a --shared --host a.lab", "new a --shared --authority",
                             "new a --shared --p256", "new a --shared --days 3"})
        EXPECT_EQ(key(line).code, 2) << line;
    EXPECT_TRUE(contains(key("new node7 --shared").output, "--force"));
}

TEST_F(tool_key, three_commands_pin_two_keys_to_each_other) {
    const auto fingerprint = [&](const std::string& printed) {
        const std::size_t at = printed.find("fingerprint: ");
        EXPECT_NE(at, std::string::npos) << printed;
        return printed.substr(at + 13, 64);
    };
    const std::string first = done("new node7 --self-signed");
    const std::string seven = fingerprint(first);
    EXPECT_TRUE(contains(first, "amalgam key new NAME --trust " + seven)) << first;
    const std::string second = done("new ./node8 --p256 --days 30 --trust " + seven);
    const std::string eight = fingerprint(second);
    EXPECT_TRUE(contains(second, "amalgam key trust NAME " + eight)) << second;
    EXPECT_TRUE(contains(done("trust node7 " + eight), "trusts the key " + eight));
    EXPECT_TRUE(contains(done("show node7"), "trusted keys\n  trusts       " + eight));
    EXPECT_TRUE(contains(done("show ./node8"), "trusts       " + seven));
    // openssl tells the same fingerprint.
    const outcome theirs = run_tool(
        "sh -c", shell_word("openssl x509 -pubkey -noout -in " + at("node7") +
                            "/certificate.pem | openssl pkey -pubin -outform DER | openssl dgst "
                            "-sha256 -r"));
    EXPECT_TRUE(theirs.output.starts_with(seven)) << theirs.output;
    // A port of each opens by them.
    for (const std::string& each : {at("node7"), home.with("node8")}) {
        const outcome got = run_tool(shell_word(AMALGAM_TOOL),
                                     "info --explain 'tcp+tls://127.0.0.1:0?"
                                     "credentials=" +
                                         each + "'");
        EXPECT_TRUE(contains(got.output, "trusts 1 keys")) << got.output;
    }
    const auto parts = lines_of_json(done("show node7 --json"));
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0]["fingerprint"], seven);
    EXPECT_EQ(parts[2]["kind"], "trusted key");
    EXPECT_EQ(parts[2]["fingerprint"], eight);
    EXPECT_FALSE(parts[2].contains("key_bits") || parts[2].contains("algorithm"));

    EXPECT_TRUE(contains(done("revoke " + eight + " --with node7"), "it trusts nobody now"));
    EXPECT_TRUE(contains(done("show node7"), "trusted keys\n  trusts       nobody"));
    EXPECT_EQ(key("revoke " + eight + " --with node7").code, 1);
    done("new lab --authority");
    for (const std::string line :
         {"trust node7 lab", "sign node7 --with lab --force", "new node7 --with lab --force"})
        EXPECT_EQ(key(line).code, 1) << line;
    const std::string lines[] = {"new a --self-signed --authority",
                                 "new a --self-signed --with lab",
                                 "new a --self-signed --shared",
                                 "new a --self-signed --group b",
                                 "new a --trust 1234",
                                 "new a --shared --trust " + seven};
    for (const std::string& line : lines)
        EXPECT_EQ(key(line).code, 2) << line;
    EXPECT_FALSE(files::exists(at("a")));
}

TEST_F(tool_key, what_files_say_is_json_that_openssl_confirms) {
    done("new lab --authority");
    done("new node7 --host node7.lab --host 10.0.0.7 --group compute --with lab");
    const auto node = lines_of_json(done("show node7 --json"));
    ASSERT_EQ(node.size(), 5u);
    const char* const kinds[] = {"private key", "certificate", "request", "authority",
                                 "revocation list"};
    const char* const names[] = {"key", "certificate", "request", "authority", "revoked"};
    for (std::size_t i = 0; i < node.size(); ++i) {
        EXPECT_EQ(node[i]["kind"], kinds[i]);
        EXPECT_EQ(node[i]["file"], at("node7") + "/" + names[i] + ".pem");
    }
    const auto& certificate = node[1];
    const std::string file = at("node7") + "/certificate.pem";
    EXPECT_EQ(certificate["name"], "node7");
    EXPECT_EQ(certificate["hosts"], (nlohmann::json{"node7.lab", "10.0.0.7"}));
    EXPECT_EQ(certificate["groups"], nlohmann::json{"compute"});
    EXPECT_EQ(certificate["issuer"], "CN=lab");
    EXPECT_EQ(certificate["valid_now"], true);
    EXPECT_EQ(certificate["algorithm"], "ED25519");
    const std::string serial = openssl("x509 -noout -serial -in " + file).output;
    EXPECT_EQ("serial=" + certificate["serial"].get<std::string>() + "\n", serial);
    const std::pair<const char*, std::string> times[] = {{"not_before", "-startdate"},
                                                         {"not_after", "-enddate"}};
    for (const auto& [member, option] : times) {
        const std::string told =
            openssl("x509 -noout -dateopt iso_8601 " + option + " -in " + file).output;
        std::string ours = certificate[member];
        ours.replace(ours.find('T'), 1, " ");
        EXPECT_TRUE(contains(told, "=" + ours)) << told << ours;
    }
    for (const int same : {0, 2})
        EXPECT_EQ(node[static_cast<std::size_t>(same)]["fingerprint"], certificate["fingerprint"]);
    EXPECT_FALSE(node[3].contains("hosts")) << "of an authority";
    EXPECT_EQ(node[4]["revoked"], nlohmann::json::array());

    done("revoke node7 --with lab");
    const auto lists = lines_of_json(done("show --json " + at("lab") + "/revoked.pem"));
    ASSERT_EQ(lists.size(), 1u);
    EXPECT_EQ(lists[0]["issuer"], "CN=lab");
    ASSERT_EQ(lists[0]["revoked"].size(), 1u);
    EXPECT_EQ(lists[0]["revoked"][0]["serial"], certificate["serial"]);

    done("new alice --shared");
    done("new bob --shared");
    done("trust alice bob");
    const std::string shared = done("show alice --json");
    const auto keys = lines_of_json(shared);
    ASSERT_EQ(keys.size(), 2u);
    EXPECT_EQ(keys[0]["own"], true);
    EXPECT_EQ(keys[0]["key_bits"], 256);
    EXPECT_EQ(keys[1]["name"], "bob");
    EXPECT_EQ(keys[1]["own"], false);
    std::ifstream secret(at("alice") + "/shared.keys");
    std::string line;
    std::getline(secret, line);
    EXPECT_FALSE(contains(shared, line.substr(6, 16))) << "a secret is shown";
    EXPECT_EQ(key("show nobody --json").code, 1);
}

TEST_F(tool_key, nothing_is_replaced_without_force) {
    done("new lab --authority");
    done("new node7 --with lab");
    for (const char* line :
         {"new lab --authority", "new node7 --with lab", "new node7", "sign node7 --with lab"}) {
        const outcome got = key(line);
        EXPECT_EQ(got.code, 1) << line;
        EXPECT_TRUE(contains(got.output, "--force")) << got.output;
    }
    done("sign node7 --with lab --force");
    done("new node7 --with lab --force");
    EXPECT_EQ(verify("node7").code, 0);
}

TEST_F(tool_key, wrong_input_gets_one_sentence_and_the_code_of_its_kind) {
    done("new lab --authority");
    done("new node7 --with lab");
    const std::string authority = done("show lab");
    struct input {
        const char* line;
        int code;
        const char* part;
    };
    const input all[] = {
        {"", 2, "no command; expected one of: new, sign, trust, revoke, show"},
        {"fly", 2, "unknown command \"fly\""},
        {"new", 2, "name is required"},
        {"new ''", 2, "is empty"},
        {"new 'no de'", 2, "the name \"no de\" cannot be certified"},
        {"new -- -x", 2, "the name \"-x\" cannot be certified"},
        {"new x --host a,DNS:b", 2, "the host \"a,DNS:b\" cannot be certified"},
        {"new x --host '*.lab'", 2, "example: *.rack.lab"},
        {"new x --group 'a b'", 2, "the group \"a b\" cannot be certified"},
        {"new x --authority --with lab", 2, "excludes"},
        {"new x --authority --host a", 2, "an authority has no hosts"},
        {"new x --days 0 --with lab", 2, "--days"},
        {"new x --days soon --with lab", 2, "--days"},
        {"new x --days 7", 2, "expected --with or --authority"},
        {"new x --with nobody", 1, "nobody/certificate.pem\" cannot be read"},
        {"new x --with node7", 1, "is not an authority's"},
        {"new x --with lab --days 36500", 1, "longer than the authority itself"},
        {"new lab --force", 2, "is the certificate of an authority"},
        {"new lab --with lab --force", 1, "is the authority itself, which would be replaced"},
        {"new ./.config/amalgam/keys/lab --with lab --force", 1, "is the authority itself"},
        {"sign node7 --with lab --output lab --force", 1, "is the certificate of an authority"},
        {"new /proc/nowhere/x", 1, "cannot be written"},
        {"sign", 2, "request is required"},
        {"sign node7", 2, "--with is required"},
        {"sign nobody --with lab", 1, "nobody/request.pem\" cannot be read"},
        {"sign lab --with lab", 1, "lab/request.pem\" cannot be read"},
        {"sign node7 --with lab --days 36500 --force", 1, "longer than the authority itself"},
        {"trust node7", 2, "authority is required"},
        {"trust node7 nobody", 1, "cannot be read"},
        {"trust nobody lab", 1, "there is no folder"},
        {"trust node7 node7", 1, "is not an authority's"},
        {"revoke node7", 2, "--with is required"},
        {"revoke 'no such' --with lab", 1, "is neither a certificate nor a serial number"},
        {"revoke lab --with lab", 1, "cannot revoke itself"},
        {"revoke node7 --with nobody", 1, "there is no folder"},
        {"show nobody", 1, "there is no key in"},
        {"show /dev/null", 1, "is not a file"},
        {"show /dev/zero", 1, "is not a file"},
        {"show ./none.pem", 1, "cannot be read"},
    };
    for (const input& each : all) {
        const outcome got = key(each.line);
        EXPECT_EQ(got.code, each.code) << each.line << "\n" << got.output;
        EXPECT_TRUE(contains(got.output, each.part)) << each.line << "\n" << got.output;
        EXPECT_TRUE(got.output.starts_with("amalgam: ")) << got.output;
        EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
        EXPECT_FALSE(files::exists(at("x"))) << each.line;
    }
    EXPECT_EQ(done("show lab"), authority);
}

#ifdef AMALGAM_LOADS_OPENSSL
TEST_F(tool_key, only_keys_need_openssl_and_say_so_where_it_cannot_be_loaded) {
    home.with("libssl.so." AMALGAM_LOADS_OPENSSL, "no library");
    const std::string tool = "LD_LIBRARY_PATH=" + home.path() + " " + shell_word(AMALGAM_TOOL);
    EXPECT_EQ(run_tool(tool, "--version").code, 0);
    EXPECT_EQ(run_tool(tool, "info --explain tcp://127.0.0.1:0").code, 0);
    for (const std::string line :
         {"key new ./x --authority", "key sign x --with lab", "key trust x lab",
          "key revoke x --with lab", "key show x", "info --explain tcp+tls://?credentials=x"}) {
        const outcome got =
            run_tool("cd " + home.path() + " && HOME=" + home.path() + " " + tool, line);
        EXPECT_EQ(got.code, 1) << line;
        EXPECT_TRUE(contains(got.output, "need OpenSSL 3, which cannot be loaded")) << got.output;
        EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
    }
}
#endif

TEST_F(tool_key, a_key_that_others_can_read_is_not_used) {
    done("new lab --authority");
    ::chmod((at("lab") + "/key.pem").c_str(), 0640);
    const outcome got = key("new node7 --with lab");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output, "chmod 600 " + at("lab") + "/key.pem")) << got.output;
}

}  // namespace
}  // namespace amalgam::tool_testing
