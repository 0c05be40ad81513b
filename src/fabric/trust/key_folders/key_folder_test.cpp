// What `amalgam key` does, and that openssl agrees with it.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/fabric/key_folder.hpp>

#include "contains.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;

/// All files of a folder, and what they have.
std::vector<std::pair<std::string, std::string>> everything_in(const std::string& folder) {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& each : files::directory_iterator(folder))
        all.emplace_back(each.path().filename().string(), content(each.path().string()));
    std::sort(all.begin(), all.end());
    return all;
}

/// What the command printed; the test fails if it failed.
std::string openssl(const std::string& arguments, int expected = 0) {
    const std::string command = "{ openssl " + arguments + "; } 2>&1 </dev/null";
    std::FILE* const pipe = ::popen(command.c_str(), "r");
    std::string output;
    char part[4096];
    for (std::size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
        output.append(part, n);
    const int ended = ::pclose(pipe);
    EXPECT_EQ(WEXITSTATUS(ended), expected) << command << "\n" << output;
    return output;
}

std::string serial_in(const std::string& folder) {
    const std::string text = openssl("x509 -noout -serial -in " + folder + "/certificate.pem");
    return text.substr(7, text.find('\n') - 7);
}

unsigned mode_of(const std::string& path) {
    struct stat about {};
    EXPECT_EQ(::stat(path.c_str(), &about), 0) << path;
    return about.st_mode & 07777;
}

class key_folder_test : public testing::Test {
protected:
    void SetUp() override {
        if (std::system("openssl version >/dev/null 2>&1") != 0)
            GTEST_SKIP() << "the openssl command is not installed";
    }
    /// What `openssl verify` says of a folder's certificate, by the files of that folder.
    std::string verified(const std::string& folder, int expected = 0) {
        return openssl("verify -x509_strict -crl_check -purpose sslserver -CAfile " + folder +
                           "/authority.pem -CRLfile " + folder + "/revoked.pem " + folder +
                           "/certificate.pem",
                       expected);
    }
    /// One sentence of this code, which names `part`.
    template <typename Call>
    void expect_refused(errc code, const std::string& part, Call call) {
        const error why = error_of(call);
        EXPECT_EQ(why.code(), code) << why.what();
        EXPECT_TRUE(contains(why.what(), part)) << why.what();
        EXPECT_FALSE(contains(why.what(), "\n")) << why.what();
    }

    const lab_folder here;
};

TEST_F(key_folder_test, openssl_verifies_what_was_signed_with_both_algorithms) {
    for (const key_algorithm each : {key_algorithm::ed25519, key_algorithm::p256}) {
        const std::string name = each == key_algorithm::p256 ? "p256" : "ed25519";
        const std::string authority = here.with("authority-" + name);
        make_key(authority, {.name = "authority-" + name, .algorithm = each, .authority = true});
        make_key(here.with(name), {.name = name,
                                   .hosts = {"node7.lab", "*.rack.lab", "10.0.0.7", "fd00::7"},
                                   .groups = {"compute", "admin"},
                                   .algorithm = each});
        sign_key(here.with(name), authority);
        EXPECT_TRUE(contains(verified(here.with(name)), ": OK"));
        const std::string text =
            openssl("x509 -noout -text -in " + here.with(name) + "/certificate.pem");
        for (const char* part :
             {"CN = ", "OU = compute, OU = admin",
              "DNS:node7.lab, DNS:*.rack.lab, IP Address:10.0.0.7", "IP Address:FD00:0:0:0:0:0:0:7",
              "CA:FALSE", "TLS Web Server Authentication", "TLS Web Client Authentication",
              "Digital Signature"})
            EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
        openssl("pkey -noout -check -in " + here.with(name) + "/key.pem");
        openssl("req -noout -verify -in " + here.with(name) + "/request.pem");
        const std::string ca = openssl("x509 -noout -text -in " + authority + "/certificate.pem");
        EXPECT_TRUE(contains(ca, "CA:TRUE, pathlen:0")) << ca;
        EXPECT_TRUE(contains(ca, "Certificate Sign, CRL Sign")) << ca;
        openssl("verify -x509_strict -CAfile " + authority + "/certificate.pem " + authority +
                "/certificate.pem");
        openssl("crl -noout -text -CAfile " + authority + "/certificate.pem -in " + authority +
                "/revoked.pem");
    }
}

TEST_F(key_folder_test, every_host_that_is_certified_is_found_by_who_connects_to_it) {
    const std::pair<const char*, const char*> all[] = {{"node7", "node7"},
                                                       {"node_7.lab", "node_7.lab"},
                                                       {"*.rack.lab", "x.rack.lab"},
                                                       {"*.a-1.rack.lab", "7.a-1.rack.lab"}};
    for (const auto& [certified, connected] : all) {
        const std::string node = here.add("node", {.hosts = {certified}});
        const auto own = detail::certificates_in(content(node + "/certificate.pem"), "own").value();
        // By the flags that peers are verified with.
        EXPECT_EQ(X509_check_host(
                      own.front().get(), connected, 0,
                      X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS,
                      nullptr),
                  1)
            << certified;
        files::remove_all(node);
    }
}

TEST_F(key_folder_test, modes_keep_keys_to_their_owner_whatever_the_umask) {
    const mode_t before = ::umask(0);
    make_key(here.with("deep/er/node"), {.name = "node"});
    ::umask(before);
    EXPECT_EQ(mode_of(here.with("deep")), 0700u);
    EXPECT_EQ(mode_of(here.with("deep/er/node")), 0700u);
    EXPECT_EQ(mode_of(here.with("deep/er/node/key.pem")), 0600u);
    sign_key(here.with("deep/er/node"), here.lab);
    EXPECT_EQ(mode_of(here.with("deep/er/node/certificate.pem")), 0644u);
    EXPECT_EQ(mode_of(here.lab + "/key.pem"), 0600u);
    // Nothing unfinished stays behind.
    std::vector<std::string> names;
    for (const auto& each : files::directory_iterator(here.with("deep/er/node")))
        names.push_back(each.path().filename());
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"authority.pem", "certificate.pem", "key.pem",
                                               "request.pem", "revoked.pem"}));
}

TEST_F(key_folder_test, a_revoked_one_is_refused_by_openssl_and_the_others_are_not) {
    const std::string good = here.add("good"), bad = here.add("bad"), worse = here.add("worse");
    const std::string text = revoke_key(bad, here.lab);
    EXPECT_TRUE(contains(text, serial_in(bad))) << text;
    revoke_key(serial_in(worse), here.lab);
    EXPECT_TRUE(contains(revoke_key(bad + "/certificate.pem", here.lab), "is revoked already"));
    for (const std::string& each : {good, bad, worse})
        EXPECT_TRUE(contains(trust_authority(each, here.lab + "/revoked.pem"), "revocation list"));
    EXPECT_TRUE(contains(verified(good), ": OK"));
    EXPECT_TRUE(contains(verified(bad, 2), "certificate revoked"));
    EXPECT_TRUE(contains(verified(worse, 2), "certificate revoked"));
    const std::string list = openssl("crl -noout -text -in " + here.lab + "/revoked.pem");
    EXPECT_TRUE(contains(list, "X509v3 CRL Number: \n                3")) << list;
    EXPECT_TRUE(contains(describe_key(here.lab), serial_in(worse)));
}

TEST_F(key_folder_test, an_older_list_does_not_take_back_what_was_revoked) {
    const std::string node = here.add("node");
    files::copy_file(here.lab + "/revoked.pem", here.with("old.pem"));
    revoke_key(node, here.lab);
    trust_authority(node, here.lab);
    const std::string before = content(node + "/revoked.pem");
    expect_refused(errc::invalid, "is older (number 1 of 20",
                   [&] { trust_authority(node, here.with("old.pem")); });
    EXPECT_EQ(content(node + "/revoked.pem"), before);
}

TEST_F(key_folder_test, an_authority_whose_list_is_gone_or_anothers_does_not_begin_a_new_one) {
    const std::string node = here.add("node");
    const lab_folder other;
    files::copy_file(other.lab + "/revoked.pem", here.lab + "/revoked.pem",
                     files::copy_options::overwrite_existing);
    expect_refused(errc::invalid, "is not the revocation list of",
                   [&] { revoke_key(node, here.lab); });
}

TEST_F(key_folder_test, an_authority_whose_newest_list_is_gone_says_so_until_it_is_back) {
    const std::string list = here.lab + "/revoked.pem", first = content(list);
    const std::string node = here.add("node"), bad = here.add("bad"), worse = here.add("worse");
    revoke_key(bad, here.lab);
    const lab_folder other;
    trust_authority(node, here.lab);
    trust_authority(node, other.lab);
    const auto expect_neither = [&](const std::string& part) {
        for (const std::string& each : {part, std::string("number 2"), std::string("example: cp ")})
            expect_refused(errc::invalid, each, [&] { revoke_key(worse, here.lab); });
        expect_refused(errc::invalid, part, [&] { sign_key(node, here.lab, {.overwrite = true}); });
    };
    files::remove(list);
    expect_neither("/revoked.pem\" is gone");
    std::ofstream(list) << first;
    expect_neither("/revoked.pem\" is number 1");
    // An endpoint has it, among others' lists.
    files::copy_file(node + "/revoked.pem", list, files::copy_options::overwrite_existing);
    trust_authority(bad, here.lab);
    sign_key(node, here.lab, {.overwrite = true});
    revoke_key(worse, here.lab);
    const auto now = detail::revocation_lists_in(content(list), "list").value();
    ASSERT_EQ(now.size(), 1u);
    EXPECT_EQ(detail::number_of(*now.front()), 3u);
    const std::string text = describe_key(list);
    EXPECT_TRUE(contains(text, serial_in(bad)) && contains(text, serial_in(worse))) << text;
    // A number that is none is not 0.
    std::ofstream(here.lab + "/revoked.number") << "";
    expect_refused(errc::invalid, "is not the number of a revocation list",
                   [&] { revoke_key(worse, here.lab); });
}

TEST_F(key_folder_test, keys_are_signed_while_others_are_revoked) {
    std::vector<std::string> all;
    for (int i = 0; i < 20; ++i)
        all.push_back(here.add("node" + std::to_string(i)));
    std::thread revoking([&] {
        for (const std::string& each : all)
            revoke_key(each, here.lab);
    });
    for (const std::string& each : all)
        EXPECT_NO_THROW(sign_key(all.front(), here.lab, {.overwrite = true})) << each;
    revoking.join();
}

TEST_F(key_folder_test, a_list_that_begins_anew_is_newer_than_all_that_went_before) {
    const std::string node = here.add("node"), bad = here.add("bad"), worse = here.add("worse");
    revoke_key(bad, here.lab);
    trust_authority(node, here.lab);
    for (const char* each : {"/revoked.pem", "/revoked.number"})
        files::remove(here.lab + each);
    revoke_key(worse, here.lab);
    trust_authority(node, here.lab + "/revoked.pem");
    EXPECT_TRUE(contains(describe_key(node + "/revoked.pem"), serial_in(worse)));
}

TEST_F(key_folder_test, a_list_of_an_authority_that_everybody_could_replace_is_refused) {
    const std::string node = here.add("node");
    ::chmod((here.lab + "/revoked.pem").c_str(), 0646);
    expect_refused(errc::denied, "can be written by everybody on this host",
                   [&] { revoke_key(node, here.lab); });
}

TEST_F(key_folder_test, a_request_from_elsewhere_is_signed_as_the_signer_says) {
    make_key(here.with("far"), {.name = "far", .hosts = {"far.lab"}, .groups = {"admin"}});
    files::create_directory(here.with("desk"));
    files::copy_file(here.with("far") + "/request.pem", here.with("desk/far.pem"));
    const std::string told = sign_key(here.with("desk/far.pem"), here.lab,
                                      {.days = 7,
                                       .hosts = {{"far.lab", "10.1.1.1"}},
                                       .groups = std::vector<std::string>{},
                                       .output = here.with("back")});
    EXPECT_TRUE(contains(told, "certified far: hosts far.lab, 10.1.1.1; no group; until 20"))
        << told;
    EXPECT_FALSE(files::exists(here.with("desk/certificate.pem")));
    for (const auto& each : files::directory_iterator(here.with("back")))
        files::copy_file(each.path(), files::path(here.with("far")) / each.path().filename());
    EXPECT_TRUE(contains(verified(here.with("far")), ": OK"));
    EXPECT_TRUE(credentials::from_folder(here.with("far"))->self().groups.empty());
}

TEST_F(key_folder_test, a_request_made_by_openssl_is_signed_but_never_as_an_authority) {
    openssl("req -new -newkey rsa:2048 -nodes -keyout " + here.with("key.pem") + " -out " +
            here.with("request.pem") +
            " -subj /CN=theirs/OU=compute -addext basicConstraints=critical,CA:TRUE"
            " -addext subjectAltName=DNS:theirs.lab");
    sign_key(here.with("request.pem"), here.lab);
    ::chmod(here.with("key.pem").c_str(), 0600);
    EXPECT_TRUE(contains(verified(here.path()), ": OK"));
    const auto got = credentials::from_folder(here.path());
    EXPECT_EQ(to_text(got->self()), "theirs (groups: compute)");
    EXPECT_TRUE(
        contains(openssl("x509 -noout -text -in " + here.with("certificate.pem")), "CA:FALSE"));
    expect_refused(errc::invalid, "is not an authority's", [&] {
        make_key(here.with("victim"), {.name = "victim"});
        sign_key(here.with("victim"), here.path());
    });
}

TEST_F(key_folder_test, a_request_for_a_short_key_is_refused) {
    openssl("req -new -newkey rsa:1024 -nodes -keyout " + here.with("key.pem") + " -out " +
            here.with("request.pem") + " -subj /CN=short");
    expect_refused(errc::invalid, "is for a key of 1024 bits",
                   [&] { sign_key(here.with("request.pem"), here.lab); });
}

TEST_F(key_folder_test, a_request_that_was_changed_is_refused) {
    make_key(here.with("node"), {.name = "node"});
    auto request =
        detail::request_in(content(here.with("node") + "/request.pem"), "request").value();
    X509_NAME_add_entry_by_NID(X509_REQ_get_subject_name(request.get()), NID_organizationalUnitName,
                               MBSTRING_UTF8, reinterpret_cast<const unsigned char*>("admin"), 5,
                               -1, 0);
    unsigned char* changed = nullptr;
    ASSERT_GT(i2d_re_X509_REQ_tbs(request.get(), &changed), 0);  // Else the old text is written.
    OPENSSL_free(changed);
    std::ofstream(here.with("node") + "/request.pem") << detail::to_pem(*request);
    expect_refused(errc::invalid, "is not signed by the key that it is for",
                   [&] { sign_key(here.with("node"), here.lab); });
    EXPECT_FALSE(files::exists(here.with("node") + "/certificate.pem"));
}

TEST_F(key_folder_test, nothing_is_replaced_without_being_told_to) {
    const std::string node = here.add("node");
    const std::string key = content(node + "/key.pem"),
                      certificate = content(node + "/certificate.pem"),
                      lab = content(here.lab + "/key.pem");
    expect_refused(errc::in_use, "--force", [&] { make_key(node, {.name = "node"}); });
    expect_refused(errc::in_use, "--force",
                   [&] { make_key(here.lab, {.name = "lab", .authority = true}); });
    expect_refused(errc::in_use, "certificate.pem", [&] { sign_key(node, here.lab); });
    EXPECT_EQ(content(node + "/key.pem"), key);
    EXPECT_EQ(content(node + "/certificate.pem"), certificate);
    EXPECT_EQ(content(here.lab + "/key.pem"), lab);

    sign_key(node, here.lab, {.overwrite = true});
    EXPECT_NE(content(node + "/certificate.pem"), certificate);
    make_key(node, {.name = "node", .overwrite = true});
    EXPECT_NE(content(node + "/key.pem"), key);
    EXPECT_FALSE(files::exists(node + "/certificate.pem")) << "it was for the earlier key";
}

TEST_F(key_folder_test, a_signature_never_replaces_the_certificate_of_an_authority) {
    const std::string node = here.add("node");
    const lab_folder other;
    files::create_directory_symlink(here.lab, here.with("link"));
    const std::string before = content(here.lab + "/certificate.pem"),
                      others = content(other.lab + "/certificate.pem");
    for (const std::string& output : {here.lab, here.with("link"), other.lab})
        expect_refused(errc::invalid, "is the certificate of an authority",
                       [&] { sign_key(node, here.lab, {.output = output, .overwrite = true}); });
    EXPECT_EQ(content(here.lab + "/certificate.pem"), before);
    EXPECT_EQ(content(other.lab + "/certificate.pem"), others);
    EXPECT_FALSE(files::exists(here.lab + "/authority.pem"));
}

TEST_F(key_folder_test, a_key_that_is_no_authority_never_takes_the_place_of_one) {
    const auto before = everything_in(here.lab);
    expect_refused(errc::invalid, "is the certificate of an authority",
                   [&] { make_key(here.lab, {.name = "lab", .overwrite = true}); });
    EXPECT_EQ(everything_in(here.lab), before);
    make_key(here.lab, {.name = "lab", .authority = true, .overwrite = true});
    EXPECT_NE(everything_in(here.lab), before) << "it was told to";
    here.add("node");
}

TEST_F(key_folder_test, keys_made_and_signed_at_once_leave_one_that_fits_its_certificate) {
    for (int round = 0; round < 10; ++round) {
        std::vector<std::thread> all;
        for (int i = 0; i < 8; ++i)
            all.emplace_back([&] {
                make_key(here.with("node"), {.name = "node", .overwrite = true});
                sign_key(here.with("node"), here.lab, {.overwrite = true});
            });
        for (std::thread& each : all)
            each.join();
        const auto got = credentials::try_from_folder(here.with("node"));
        ASSERT_TRUE(got) << got.sentence();
    }
}

TEST_F(key_folder_test, nothing_is_left_behind_by_a_process_that_is_killed_while_it_writes_a_key) {
    // The kernel kills it when a file becomes longer than that.
    const auto die_writing = [&](bool overwrite) {
        const pid_t child = ::fork();
        if (child == 0) {
            const rlimit none{0, 0}, few{10, 10};
            ::setrlimit(RLIMIT_CORE, &none);
            ::setrlimit(RLIMIT_FSIZE, &few);
            ::signal(SIGXFSZ, SIG_DFL);
            make_key(here.with("node"), {.name = "node", .overwrite = overwrite});
            ::_exit(0);
        }
        int ended = 0;
        ASSERT_EQ(::waitpid(child, &ended, 0), child);
        ASSERT_TRUE(WIFSIGNALED(ended));
    };
    die_writing(false);
    EXPECT_TRUE(everything_in(here.with("node")).empty());
    const auto before = everything_in(here.add("node"));
    die_writing(true);
    EXPECT_EQ(everything_in(here.with("node")), before);
    // What was left where files have a name from the beginning.
    std::ofstream(here.with("node/key.pem.new")) << "half a key";
    make_key(here.with("node"), {.name = "node", .overwrite = true});
    EXPECT_FALSE(files::exists(here.with("node/key.pem.new")));
    EXPECT_EQ(mode_of(here.with("node/key.pem")), 0600u);
}

TEST_F(key_folder_test, names_hosts_groups_and_days_that_cannot_be_certified_are_named) {
    const auto make = [&](key_request what) {
        if (what.name.empty()) what.name = "node";
        make_key(here.with("refused"), what);
    };
    for (const char* name :
         {"-node", ".node", "no de", "no/de", "node\n",
          "n\xc3\xb6"
          "de",
          "node,OU=admin", "nodexxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"})
        expect_refused(errc::invalid, "the name \"", [&] { make({.name = name}); });
    for (const char* host : {"", "a,DNS:evil.lab", "a b", "*", "a.*.lab", "-a", "a-.lab", "a..lab",
                             "10.0.0.300", "1.2", "::g", "[::1]", "host:7000", "ho\nst"})
        expect_refused(errc::invalid, "the host \"", [&] { make({.hosts = {host}}); });
    for (const char* host : {"*", "*.lab", "a.*.lab", "*.*.lab", "a*.rack.lab", "*.rack_1.lab"})
        expect_refused(errc::invalid, "as it matches nothing else; example: *.rack.lab",
                       [&] { make({.hosts = {host}}); });
    for (const char* group : {"", "a b", "a/b", "-a", "a=b"})
        expect_refused(errc::invalid, "the group \"", [&] { make({.groups = {group}}); });
    expect_refused(errc::invalid, "expected at most 64",
                   [&] { make({.groups = std::vector<std::string>(65, "g")}); });
    expect_refused(errc::invalid, "expected at most 64",
                   [&] { make({.hosts = std::vector<std::string>(65, "h.lab")}); });
    expect_refused(errc::invalid, "an authority has no hosts",
                   [&] { make({.hosts = {"a"}, .authority = true}); });
    for (const unsigned days : {0u, 36501u, 4000000000u})
        expect_refused(errc::invalid, "expected 1 to 36500",
                       [&] { make({.days = days, .authority = true}); });
    EXPECT_FALSE(files::exists(here.with("refused")));
    const std::string node = here.add("node");
    expect_refused(errc::invalid, "longer than the authority itself",
                   [&] { sign_key(node, here.lab, {.days = 36500, .overwrite = true}); });
    expect_refused(errc::invalid, "longer than the authority itself",
                   [&] { require_authority(here.lab, 36500); });
    require_authority(here.lab, 365);
}

TEST_F(key_folder_test, what_is_no_authority_request_or_serial_number_is_named) {
    const std::string node = here.add("node"), other = here.add("other");
    const lab_folder elsewhere;
    expect_refused(errc::not_found, "certificate.pem",
                   [&] { sign_key(node, here.with("nobody"), {.overwrite = true}); });
    expect_refused(errc::invalid, "is not an authority's",
                   [&] { sign_key(node, other, {.overwrite = true}); });
    expect_refused(errc::not_found, "request.pem", [&] { sign_key(here.lab, elsewhere.lab); });
    expect_refused(errc::invalid, "holds no request",
                   [&] { sign_key(node + "/certificate.pem", here.lab); });
    expect_refused(errc::invalid, "is not an authority's", [&] { trust_authority(node, other); });
    expect_refused(errc::not_found, "there is no folder",
                   [&] { trust_authority(here.with("nobody"), here.lab); });
    expect_refused(errc::invalid, "was not certified by", [&] { revoke_key(node, elsewhere.lab); });
    expect_refused(errc::invalid, "cannot revoke itself", [&] { revoke_key(here.lab, here.lab); });
    for (const char* serial :
         {"xyz", "", "0", "00", "12 34", "-1", "11111111111111111111111111111111111111111"})
        expect_refused(errc::invalid, "is neither a certificate nor a serial number",
                       [&] { revoke_key(serial, here.lab); });
    ::chmod((here.lab + "/key.pem").c_str(), 0644);
    expect_refused(errc::denied, "chmod 600",
                   [&] { sign_key(node, here.lab, {.overwrite = true}); });
    expect_refused(errc::not_found, "there is no key", [&] { describe_key(here.with("nobody")); });
    expect_refused(errc::invalid, "is not in PEM",
                   [&] { describe_key(here.with("text.pem", "nothing")); });
}

TEST_F(key_folder_test, an_authority_that_has_expired_or_has_anothers_key_signs_nothing) {
    const std::string node = here.add("node"), key = content(here.lab + "/key.pem");
    const lab_folder other;
    const auto expect_neither = [&](const std::string& part) {
        expect_refused(errc::invalid, part, [&] { sign_key(node, here.lab, {.overwrite = true}); });
        expect_refused(errc::invalid, part, [&] { revoke_key(node, here.lab); });
    };
    std::ofstream(here.lab + "/key.pem") << content(other.lab + "/key.pem");
    expect_neither("is not the private key of the certificate");
    std::ofstream(here.lab + "/key.pem") << key;
    const auto own = detail::private_key_in(key, "lab").value();
    const auto end = std::chrono::system_clock::now() - std::chrono::minutes(1);
    std::ofstream(here.lab + "/certificate.pem")
        << detail::to_pem(*detail::make_authority("lab", *own, end));
    expect_neither("certificate.pem\" has expired on 20");
}

TEST_F(key_folder_test,
       what_is_signed_began_an_hour_ago_and_ends_with_its_authority_at_the_latest) {
    make_key(here.with("brief"), {.name = "brief", .days = 10, .authority = true});
    make_key(here.with("node"), {.name = "node"});
    sign_key(here.with("node"), here.with("brief"));
    const std::vector<key_part> all = read_key_parts(here.with("node"));
    ASSERT_EQ(all.size(), 5u);
    const key_part &certificate = all[1], &authority = all[3], &list = all[4];
    // For clocks that differ.
    const auto earlier = std::chrono::system_clock::now() - std::chrono::minutes(59);
    for (const key_part* each : {&certificate, &authority, &list}) {
        ASSERT_TRUE(each->not_before && each->not_after);
        EXPECT_LT(*each->not_before, earlier) << each->file;
        EXPECT_EQ(*each->not_after, *authority.not_after) << each->file;
    }
}

TEST_F(key_folder_test, a_disk_that_is_full_is_told_and_leaves_what_was_there) {
    const std::string node = here.add("node");
    const auto before = everything_in(node), lab_before = everything_in(here.lab);
    const auto expect_told = [&](rlim_t room, auto call) {
        const pid_t child = ::fork();
        if (child == 0) {
            const rlimit few{room, room};
            ::signal(SIGXFSZ, SIG_IGN);  // As for a disk, write() fails.
            ::setrlimit(RLIMIT_FSIZE, &few);
            ::_exit(code_of(call) == errc::denied ? 0 : 1);
        }
        int ended = 0;
        ASSERT_EQ(::waitpid(child, &ended, 0), child);
        EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << room << ": " << ended;
        EXPECT_EQ(everything_in(node), before) << room;
        EXPECT_EQ(everything_in(here.lab), lab_before) << room;
    };
    expect_told(10, [&] { sign_key(node, here.lab, {.overwrite = true}); });
    // A key of Ed25519 has 119 bytes; for what comes behind it there is no room.
    ASSERT_EQ(content(node + "/key.pem").size(), 119u);
    for (const rlim_t room : {10, 130}) {
        expect_told(room, [&] { make_key(node, {.name = "node", .overwrite = true}); });
        expect_told(room, [&] {
            make_key(here.lab, {.name = "lab", .authority = true, .overwrite = true});
        });
        expect_told(room, [&] { revoke_key(node, here.lab); });
    }
}

TEST(file_changes, what_cannot_be_done_to_one_file_is_done_to_none) {
    const temp_folder folder;
    folder.with("goes", "goes");
    folder.with("changes", "changes");
    folder.with("stays", "stays");
    const auto before = everything_in(folder.path());
    const auto change = [&](bool all) {
        detail::file_changes changes;
        changes.remove(folder.with("goes"));
        changes.remove(folder.with("was never there"));
        changes.write(folder.with("changes"), "has changed", 0600, true);
        changes.write(folder.with("comes"), "comes", 0600, false);
        changes.write(folder.with("stays"), "has changed", 0600, all);
        EXPECT_EQ(everything_in(folder.path()), before) << "so far";
        changes.finish();
    };
    EXPECT_EQ(code_of([&] { change(false); }), errc::in_use);
    EXPECT_EQ(everything_in(folder.path()), before);
    change(true);
    EXPECT_EQ(everything_in(folder.path()),
              (std::vector<std::pair<std::string, std::string>>{
                  {"changes", "has changed"}, {"comes", "comes"}, {"stays", "has changed"}}));
}

TEST_F(key_folder_test, several_authorities_are_trusted_side_by_side) {
    const std::string node = here.add("node");
    const lab_folder other;
    trust_authority(node, other.lab);
    trust_authority(node, other.lab + "/certificate.pem");
    const std::string trusted = content(node + "/authority.pem");
    const std::string begin = "-----BEGIN CERTIFICATE-----";
    const auto second = trusted.find(begin, 1);
    ASSERT_NE(second, std::string::npos);
    EXPECT_EQ(trusted.find(begin, second + 1), std::string::npos) << "each once";
    EXPECT_TRUE(credentials::try_from_folder(node))
        << credentials::try_from_folder(node).sentence();
    EXPECT_TRUE(contains(verified(node), ": OK"));
}

TEST_F(key_folder_test, an_authority_whose_list_is_refused_is_not_trusted_either) {
    const std::string node = here.add("node");
    const lab_folder other, third;
    files::copy_file(third.lab + "/revoked.pem", other.lab + "/revoked.pem",
                     files::copy_options::overwrite_existing);
    const auto before = everything_in(node);
    expect_refused(errc::invalid, "is not the revocation list of",
                   [&] { trust_authority(node, other.lab); });
    EXPECT_EQ(everything_in(node), before);
}

TEST_F(key_folder_test, revocations_at_once_are_all_kept) {
    constexpr int count = 8;
    std::vector<std::string> serials;
    for (int i = 0; i < count; ++i)
        serials.push_back(serial_in(here.add("node" + std::to_string(i))));
    std::vector<std::thread> all;
    for (const std::string& each : serials)
        all.emplace_back([&] { revoke_key(each, here.lab); });
    for (std::thread& each : all)
        each.join();
    const std::string list = openssl("crl -noout -text -in " + here.lab + "/revoked.pem");
    for (const std::string& each : serials)
        EXPECT_TRUE(contains(list, each)) << each << "\n" << list;
}

TEST_F(key_folder_test, a_description_shows_what_openssl_shows_and_nothing_of_the_private_key) {
    const std::string node = here.add("node", {.hosts = {"node.lab"}, .groups = {"compute"}});
    const std::string text = describe_key(node);
    EXPECT_TRUE(text.starts_with(node + "/key.pem: private key\n  key          ED25519")) << text;
    const std::string print =
        openssl("x509 -in " + node +
                "/certificate.pem -pubkey -noout | openssl pkey -pubin -outform DER | sha256sum");
    for (const std::string& part :
         {std::string("node.lab"), std::string("compute"), std::string("certified by CN=lab"),
          serial_in(node), print.substr(0, 64), std::string("ED25519")})
        EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
    const std::string key = content(node + "/key.pem");
    EXPECT_FALSE(contains(text, key.substr(28, 20)));
    EXPECT_EQ(to_text(credentials::from_folder(node)->self().key), print.substr(0, 64));
    EXPECT_TRUE(contains(describe_key(node + "/key.pem"), print.substr(0, 64)));
}

TEST_F(key_folder_test, what_files_say_can_be_read_part_by_part) {
    const std::string node = here.add("node", {.hosts = {"node.lab"}, .groups = {"compute"}});
    const std::vector<key_part> all = read_key_parts(node);
    ASSERT_EQ(all.size(), 5u);
    const key_part &key = all[0], &certificate = all[1], &authority = all[3], &list = all[4];
    EXPECT_EQ(key.kind, key_part_kind::private_key);
    EXPECT_EQ(key.file, node + "/key.pem");
    EXPECT_EQ(certificate.kind, key_part_kind::certificate);
    EXPECT_EQ(certificate.hosts, std::vector<std::string>{"node.lab"});
    EXPECT_EQ(certificate.groups, std::vector<std::string>{"compute"});
    EXPECT_EQ(certificate.fingerprint, key.fingerprint);
    EXPECT_TRUE(certificate.valid_now);
    ASSERT_TRUE(certificate.not_before && certificate.not_after);
    EXPECT_LT(*certificate.not_before, *certificate.not_after);
    EXPECT_EQ(all[2].kind, key_part_kind::request);
    EXPECT_EQ(authority.kind, key_part_kind::authority);
    EXPECT_EQ(authority.name, "lab");
    EXPECT_EQ(list.kind, key_part_kind::revocation_list);
    EXPECT_TRUE(list.revoked.empty());
    revoke_key(node, here.lab);
    const std::vector<key_part> now = read_key_parts(here.lab + "/revoked.pem");
    ASSERT_EQ(now.size(), 1u);
    ASSERT_EQ(now[0].revoked.size(), 1u);
    EXPECT_EQ(now[0].revoked[0].serial, certificate.serial);
}

}  // namespace
}  // namespace amalgam
