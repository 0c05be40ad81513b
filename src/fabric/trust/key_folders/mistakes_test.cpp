// What users of `amalgam key` do by mistake, and what must not come of it: that somebody is trusted
// of whom they were told that he is not.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/fabric/key_folder.hpp>

#include "contains.hpp"
#include "fabric/trust/credentials/loaded_credentials.hpp"
#include "fabric/trust/credentials/signatures.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;

detail::loaded_credentials::loaded loaded_from(const std::string& folder) {
    credential_parts parts{.certificate = folder + "/certificate.pem",
                           .key = folder + "/key.pem",
                           .authority = folder + "/authority.pem",
                           .revoked = folder + "/revoked.pem"};
    if (!files::exists(parts.revoked)) parts.revoked.clear();
    return detail::loaded_credentials::from_files(parts);
}

class key_mistakes : public testing::Test {
protected:
    /// One sentence, which names `part`, and the folder is as before.
    template <typename Call>
    void expect_refused(const std::string& part, Call call) {
        const std::string trusted = content(node + "/authority.pem"),
                          revoked = content(node + "/revoked.pem");
        const error why = error_of(call);
        EXPECT_EQ(why.code(), errc::invalid) << why.what();
        EXPECT_TRUE(contains(why.what(), part)) << why.what();
        EXPECT_FALSE(contains(why.what(), "\n")) << why.what();
        EXPECT_EQ(content(node + "/authority.pem"), trusted) << part;
        EXPECT_EQ(content(node + "/revoked.pem"), revoked) << part;
    }
    bool lets_in(const std::string& folder) {
        const auto shown = detail::certificate_bytes(*loaded_from(folder).value());
        return bool(detail::verified_signer::of(*loaded_from(node).value(), shown));
    }

    std::string authority(const std::string& name) {
        make_key(here.with(name), {.name = name, .authority = true});
        return here.with(name);
    }
    std::string certified(const std::string& name, const std::string& by) {
        make_key(here.with(name), {.name = name});
        (void)sign_key(here.with(name), by);
        return here.with(name);
    }

    const lab_folder here;
    const std::string node = here.add("node");
};

TEST_F(key_mistakes, a_key_that_is_named_like_a_file_is_found_where_there_is_no_such_file) {
    ::setenv("XDG_CONFIG_HOME", here.with("config").c_str(), 1);
    const std::string in = key_folder("ada.pem");
    make_key(in, {.name = "ada.pem"});
    EXPECT_TRUE(contains(describe_key("ada.pem"), "ada.pem"));
    sign_key("ada.pem", here.lab);
    EXPECT_TRUE(lets_in(in));
    revoke_key("ada.pem", here.lab);
    trust_authority(node, here.lab);
    EXPECT_FALSE(lets_in(in));
    ::unsetenv("XDG_CONFIG_HOME");
}

TEST_F(key_mistakes, a_name_that_is_hexadecimal_is_no_serial_number) {
    files::rename(here.add("ada"), here.with("elsewhere"));
    const std::string before = content(here.lab + "/revoked.pem");
    for (const char* each : {"ada", "DEE", "7", "123", "fade", "123456789abcdef"})
        expect_refused("not the name of a key that is here",
                       [&] { (void)revoke_key(each, here.lab); });
    EXPECT_EQ(content(here.lab + "/revoked.pem"), before);
    // Of another authority than ours numbers may be short.
    EXPECT_TRUE(contains(revoke_key("0ADA", here.lab), "number 0ADA"));
    EXPECT_TRUE(contains(revoke_key("01", here.lab), "number 01"));
    EXPECT_TRUE(contains(revoke_key("123456789abcdef0", here.lab), "number 123456789ABCDEF0"));
}

TEST_F(key_mistakes, an_authority_whose_list_cannot_be_taken_is_not_trusted_without_it) {
    const std::string other = authority("other"), bad = certified("bad", other);
    revoke_key(bad, other);
    const std::string list = content(other + "/revoked.pem");
    // Copies that were cut off, and one from another folder.
    const std::string wrong[] = {"", "\n", "no list", content(here.lab + "/revoked.pem")};
    for (const std::string& each : wrong) {
        std::ofstream(other + "/revoked.pem") << each;
        expect_refused("is not the revocation list of",
                       [&] { (void)trust_authority(node, other); });
        EXPECT_FALSE(lets_in(bad));
    }
    std::ofstream(other + "/revoked.pem") << list;
    (void)trust_authority(node, other);
    EXPECT_FALSE(lets_in(bad));
    EXPECT_TRUE(lets_in(certified("good", other)));
}

TEST_F(key_mistakes, who_signs_is_not_trusted_before_his_list_is_there) {
    const lab_folder other;
    revoke_key(other.add("bad"), other.lab);
    // In place of a process that was killed, or a disk that was full: the list cannot be written.
    files::create_directory(node + "/revoked.pem.new");
    const std::string before = content(node + "/authority.pem");
    EXPECT_EQ(code_of([&] { (void)trust_authority(node, other.lab); }), errc::denied);
    EXPECT_EQ(content(node + "/authority.pem"), before);
    EXPECT_EQ(code_of([&] { (void)sign_key(node, other.lab, {.overwrite = true}); }), errc::denied);
    EXPECT_EQ(content(node + "/authority.pem"), before);
}

TEST_F(key_mistakes, an_authority_trusts_nobody) {
    const lab_folder other;
    const std::string before = content(here.lab + "/revoked.pem");
    expect_refused("is an authority, which trusts nobody",
                   [&] { (void)trust_authority(here.lab, other.lab); });
    EXPECT_FALSE(files::exists(here.lab + "/authority.pem"));
    EXPECT_EQ(content(here.lab + "/revoked.pem"), before);
}

TEST_F(key_mistakes, what_one_copy_of_an_authority_revoked_the_list_of_another_does_not_take_back) {
    const std::string copy = here.with("copy"), one = here.add("one"), two = here.add("two");
    files::copy(here.lab, copy);
    revoke_key(one, here.lab);
    (void)trust_authority(node, here.lab);
    revoke_key(two, copy);
    expect_refused("as copies of an authority make them",
                   [&] { (void)trust_authority(node, copy + "/revoked.pem"); });
    expect_refused("as copies of an authority make them",
                   [&] { (void)sign_key(node, copy, {.overwrite = true}); });
    EXPECT_FALSE(lets_in(one));
    // Nor does a program that runs take it.
    const auto running = credentials::from_folder(node);
    const std::string list = content(node + "/revoked.pem");
    std::ofstream(node + "/revoked.pem") << content(copy + "/revoked.pem");
    EXPECT_TRUE(contains(running->reload().sentence(), "as copies of an authority make them"));
    std::ofstream(node + "/revoked.pem") << list;
    EXPECT_TRUE(running->reload());
    revoke_key(one, copy);
    (void)trust_authority(node, copy + "/revoked.pem");
    EXPECT_FALSE(lets_in(one));
    EXPECT_FALSE(lets_in(two));
}

}  // namespace
}  // namespace amalgam
