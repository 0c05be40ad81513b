// What authorities have revoked, as an endpoint reads and keeps it.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <amalgam/fabric/credentials.hpp>

#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/credentials/credentials_testing.hpp"
#include "fabric/trust/credentials/signatures.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;

using revocation_lists_test = credentials_folder;

TEST_F(revocation_lists_test,
       a_revocation_list_may_be_absent_from_a_folder_but_not_from_named_files) {
    files::remove(node + "/revoked.pem");
    const auto got = credentials::from_folder(node);
    EXPECT_NE(got->explain().find("no revocation list"), std::string::npos) << got->explain();
    EXPECT_EQ(credentials::try_from_files(files_in(node)).code(), errc::not_found);
    EXPECT_EQ(code_of([&] { (void)credentials::from_files(files_in(node)); }), errc::not_found);
}

TEST_F(revocation_lists_test, a_revocation_list_that_everybody_could_replace_is_refused) {
    const std::string file = node + "/revoked.pem";
    ::chmod(file.c_str(), 0646);
    expect_refused(errc::denied, "\"" + file + "\" can be written by everybody on this host");
    ::chmod(file.c_str(), 0644);
    EXPECT_TRUE(credentials::try_from_folder(node));
    const temp_folder elsewhere;
    credential_parts parts = files_in(node);
    parts.revoked = elsewhere.with("list.pem", content(file));
    EXPECT_TRUE(credentials::try_from_files(parts));
    ::chmod(elsewhere.path().c_str(), 0777);
    EXPECT_EQ(credentials::try_from_files(parts).code(), errc::denied);
}

TEST_F(revocation_lists_test, a_link_to_nothing_is_no_list_that_is_absent) {
    files::remove(node + "/revoked.pem");
    files::create_symlink(node + "/not_mounted/revoked.pem", node + "/revoked.pem");
    expect_refused(errc::not_found, node + "/revoked.pem");
}

TEST_F(revocation_lists_test,
       a_revocation_list_that_has_expired_or_is_of_some_certificates_is_refused) {
    const auto by = detail::certificates_in(content(here.lab + "/certificate.pem"), "lab").value();
    const auto by_key = detail::private_key_in(content(here.lab + "/key.pem"), "lab").value();
    const auto expect_refused_with = [&](auto change, const char* why) {
        const auto list = detail::make_list(nullptr, nullptr, *by.front(), *by_key);
        change(list.get());
        ASSERT_GT(X509_CRL_sign(list.get(), by_key.get(), nullptr), 0);
        write("revoked.pem", detail::to_pem(*list));
        expect_refused(errc::invalid, why);
    };
    expect_refused_with(
        [](X509_CRL* list) {
            const detail::openssl_ptr<ASN1_TIME> past(X509_gmtime_adj(nullptr, -60));
            EXPECT_EQ(X509_CRL_set1_nextUpdate(list, past.get()), 1);
        },
        "has expired on 20");
    for (const bool first : {false, true})
        expect_refused_with(
            [first](X509_CRL* list) {
                while (first && X509_CRL_get_ext_count(list) > 0)
                    X509_EXTENSION_free(X509_CRL_delete_ext(list, 0));
                const detail::openssl_ptr<ASN1_STRING> base(ASN1_INTEGER_new());
                EXPECT_EQ(ASN1_INTEGER_set_uint64(base.get(), 1), 1);
                EXPECT_EQ(
                    X509_CRL_add1_ext_i2d(list, NID_delta_crl, base.get(), 1, X509V3_ADD_DEFAULT),
                    1);
            },
            "is not complete");
    expect_refused_with(
        [](X509_CRL* list) {
            X509V3_CTX about{};
            X509V3_set_ctx(&about, nullptr, nullptr, nullptr, list, 0);
            const detail::openssl_ptr<X509_EXTENSION> part(X509V3_EXT_conf_nid(
                nullptr, &about, NID_issuing_distribution_point, "onlyuser:TRUE"));
            ASSERT_NE(part, nullptr);
            EXPECT_EQ(X509_CRL_add_ext(list, part.get(), 0), 1);
        },
        "is not complete");
}

TEST_F(revocation_lists_test, what_was_revoked_stays_so_when_the_list_vanishes) {
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const auto first = store->in_force();
    files::rename(node + "/revoked.pem", node + "/gone");
    EXPECT_EQ(store->reload().code(), errc::not_found);
    EXPECT_EQ(store->in_force(), first);
    files::rename(node + "/gone", node + "/revoked.pem");
    EXPECT_TRUE(store->reload());
}

TEST_F(revocation_lists_test, what_was_revoked_stays_so_whatever_the_file_becomes) {
    const std::string list = node + "/revoked.pem", older = content(list);
    const std::string bad = here.add("bad");
    revoke_key(bad, here.lab);
    const std::string newest = content(here.lab + "/revoked.pem");
    ASSERT_NE(newest, older);
    write("revoked.pem", newest);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const auto first = store->in_force();
    for (const std::string& now : {std::string(), std::string("\n"), older,
                                   newest.substr(0, newest.size() / 2), std::string("no list")}) {
        write("revoked.pem", now);
        EXPECT_EQ(store->reload().code(), errc::invalid) << now;
        EXPECT_EQ(store->in_force(), first) << now;
    }
    files::remove(list);
    EXPECT_EQ(store->reload().code(), errc::not_found);
    EXPECT_EQ(store->in_force(), first);
    write("revoked.pem", newest);
    EXPECT_TRUE(store->reload());
}

TEST_F(revocation_lists_test, what_is_revoked_once_the_own_certificate_has_expired_is_refused) {
    const std::string bad = here.add("bad");
    const auto now = std::chrono::system_clock::now(), later = now + 2h;
    here.end_at(node, now + 1h);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    EXPECT_EQ(detail::loaded_credentials::from_files(files_in(node), nullptr, later).code(),
              errc::invalid);
    revoke_key(bad, here.lab);
    write("revoked.pem", content(here.lab + "/revoked.pem"));
    EXPECT_TRUE(store->reload(later)) << store->reload(later).sentence();
    const auto shown = detail::loaded_credentials::from_files(files_in(bad)).value();
    EXPECT_FALSE(
        detail::verified_signer::of(*store->in_force(), detail::certificate_bytes(*shown)));
    // Another one that has expired is refused, as at the start.
    here.end_at(node, now - 1min);
    EXPECT_EQ(store->reload(later).code(), errc::invalid);
    sign_key(node, here.lab, {.overwrite = true});
    EXPECT_TRUE(store->reload(later));
    EXPECT_GT(store->in_force()->expires(), later);
}

TEST_F(revocation_lists_test, an_authority_that_is_taken_out_takes_its_list_with_it) {
    const temp_folder elsewhere;
    const std::string second = elsewhere.with("lab2");
    make_key(second, {.name = "lab2", .authority = true});
    const std::string one = content(node + "/authority.pem"), list = content(node + "/revoked.pem");
    write("authority.pem", one + content(second + "/certificate.pem"));
    write("revoked.pem", list + content(second + "/revoked.pem"));
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    EXPECT_NE(store->in_force()->explain().find("lab2"), std::string::npos);
    write("authority.pem", one);
    ASSERT_TRUE(store->reload()) << store->reload().sentence();
    EXPECT_EQ(store->in_force()->explain().find("lab2"), std::string::npos);
    // And back: its list must be there, too.
    write("revoked.pem", list);
    EXPECT_TRUE(store->reload());
}

TEST_F(revocation_lists_test, an_authority_that_comes_back_does_not_take_back_what_it_revoked) {
    const temp_folder elsewhere;
    const std::string second = elsewhere.with("lab2"), bad = here.add("bad");
    make_key(second, {.name = "lab2", .authority = true});
    const std::string both =
        content(node + "/authority.pem") + content(second + "/certificate.pem");
    const std::string older = content(node + "/revoked.pem");
    revoke_key(bad, here.lab);
    const std::string newest = content(here.lab + "/revoked.pem");
    write("authority.pem", both);
    write("revoked.pem", newest);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const std::string of_second = content(second + "/revoked.pem");
    for (int round = 0; round < 2; ++round) {
        write("authority.pem", content(second + "/certificate.pem"));
        write("revoked.pem", round == 0 ? newest + of_second : of_second);
        ASSERT_TRUE(store->reload()) << store->reload().sentence();
        const auto without = store->in_force();
        write("authority.pem", both);
        for (const std::string& list : {older, of_second}) {
            write("revoked.pem", list);
            EXPECT_EQ(store->reload().code(), errc::invalid) << list;
            EXPECT_EQ(store->in_force(), without);
        }
        write("revoked.pem", newest + of_second);
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
    }
}

TEST_F(revocation_lists_test, two_authorities_of_one_name_keep_their_lists_apart) {
    const lab_folder other;  // Of the same subject.
    const std::string mine = content(here.lab + "/revoked.pem");
    const std::string bad = here.add("bad"), theirs = other.add("theirs");
    revoke_key(bad, here.lab);
    revoke_key(here.add("worse"), here.lab);
    const std::string newest = content(here.lab + "/revoked.pem"),
                      others = content(other.lab + "/revoked.pem");
    write("authority.pem",
          content(here.lab + "/certificate.pem") + content(other.lab + "/certificate.pem"));
    for (const std::string& both : {newest + others, others + newest}) {
        write("revoked.pem", both);
        auto store = detail::credential_store::of_files(files_in(node), true).value();
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
        const auto refuses = [&](const std::string& folder) {
            const auto shown = detail::loaded_credentials::from_files(files_in(folder)).value();
            return !detail::verified_signer::of(*store->in_force(),
                                                detail::certificate_bytes(*shown));
        };
        EXPECT_TRUE(refuses(bad));
        EXPECT_FALSE(refuses(theirs));
        // One authority's number is not held against the other's, whichever comes first.
        for (const std::string& now : {mine + others, others + mine, others}) {
            write("revoked.pem", now);
            EXPECT_EQ(store->reload().code(), errc::invalid);
        }
        revoke_key(theirs, other.lab);
        write("revoked.pem", content(other.lab + "/revoked.pem") + newest);
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
        EXPECT_TRUE(refuses(bad) && refuses(theirs));
    }
}

TEST_F(revocation_lists_test,
       an_authority_gives_way_to_another_of_its_name_and_its_list_does_no_harm) {
    const lab_folder other;
    revoke_key(here.add("bad"), here.lab);
    const std::string lists =
        content(here.lab + "/revoked.pem") + content(other.lab + "/revoked.pem");
    write("authority.pem",
          content(here.lab + "/certificate.pem") + content(other.lab + "/certificate.pem"));
    write("revoked.pem", lists);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    write("authority.pem", content(other.lab + "/certificate.pem"));
    EXPECT_TRUE(store->reload()) << store->reload().sentence();
    EXPECT_NE(store->in_force()->explain().find("(0 revoked)"), std::string::npos);
    // A list of the one that is left, but not as it was signed, is not passed over.
    auto changed = detail::revocation_lists_in(content(other.lab + "/revoked.pem"), "list").value();
    ASSERT_GT(X509_CRL_sign(changed.front().get(),
                            detail::generate_key(key_algorithm::ed25519).get(), nullptr),
              0);
    write("revoked.pem", lists + detail::to_pem(*changed.front()));
    expect_refused(errc::invalid, "is not signed by an authority in");
}

TEST_F(revocation_lists_test, of_several_lists_of_an_authority_the_newest_is_in_force) {
    const std::string first = content(here.lab + "/revoked.pem");
    const std::string bad = here.add("bad");
    revoke_key(bad, here.lab);
    const std::string second = content(here.lab + "/revoked.pem");
    for (const std::string& both : {first + second, second + first}) {
        write("revoked.pem", both);
        auto store = detail::credential_store::of_files(files_in(node), true).value();
        EXPECT_NE(store->in_force()->explain().find("(1 revoked)"), std::string::npos)
            << store->in_force()->explain();
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
    }
}

TEST_F(revocation_lists_test, lists_without_numbers_and_with_large_ones_do_not_go_back) {
    const auto by = detail::certificates_in(content(here.lab + "/certificate.pem"), "lab").value();
    const auto by_key = detail::private_key_in(content(here.lab + "/key.pem"), "lab").value();
    const auto list = [&](const char* number, long began) {
        const auto made = detail::make_list(nullptr, nullptr, *by.front(), *by_key);
        X509_EXTENSION_free(X509_CRL_delete_ext(
            made.get(), X509_CRL_get_ext_by_NID(made.get(), NID_crl_number, -1)));
        if (number != nullptr) {
            BIGNUM* value = nullptr;
            BN_hex2bn(&value, number);
            const detail::openssl_ptr<BIGNUM> kept(value);
            const detail::openssl_ptr<ASN1_STRING> whole(BN_to_ASN1_INTEGER(value, nullptr));
            EXPECT_EQ(X509_CRL_add1_ext_i2d(made.get(), NID_crl_number, whole.get(), 0, 0), 1);
        }
        const detail::openssl_ptr<ASN1_TIME> when(X509_gmtime_adj(nullptr, began));
        EXPECT_EQ(X509_CRL_set1_lastUpdate(made.get(), when.get()), 1);
        EXPECT_GT(X509_CRL_sign(made.get(), by_key.get(), nullptr), 0);
        return detail::to_pem(*made);
    };
    for (const char* number : {static_cast<const char*>(nullptr), "1234567890ABCDEF1234567890AB"}) {
        write("revoked.pem", list(number, -60));
        auto store = detail::credential_store::of_files(files_in(node), true).value();
        write("revoked.pem", list(number, -120));
        EXPECT_EQ(store->reload().code(), errc::invalid);
        write("revoked.pem", list(number, -30));
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
    }
    // The next one has the next number, however long.
    auto large = detail::revocation_lists_in(list("FFFFFFFFFFFFFFFF", -60), "list").value();
    const auto next = detail::make_list(large.front().get(), nullptr, *by.front(), *by_key);
    const detail::openssl_ptr<ASN1_STRING> number(static_cast<ASN1_INTEGER*>(
        X509_CRL_get_ext_d2i(next.get(), NID_crl_number, nullptr, nullptr)));
    EXPECT_EQ(detail::serial_of(number.get()), "010000000000000000");
}

TEST_F(revocation_lists_test,
       a_list_that_says_it_is_for_another_certificate_of_its_authority_is_refused) {
    const auto by = detail::certificates_in(content(here.lab + "/certificate.pem"), "lab").value();
    const auto by_key = detail::private_key_in(content(here.lab + "/key.pem"), "lab").value();
    const auto renewed =
        detail::make_authority("lab", *by_key, std::chrono::system_clock::now() + 1h);
    const auto list = detail::make_list(nullptr, nullptr, *by.front(), *by_key);
    X509_EXTENSION_free(X509_CRL_delete_ext(
        list.get(), X509_CRL_get_ext_by_NID(list.get(), NID_authority_key_identifier, -1)));
    X509V3_CTX about{};
    X509V3_set_ctx(&about, renewed.get(), nullptr, nullptr, list.get(), 0);
    const detail::openssl_ptr<X509_EXTENSION> which(X509V3_EXT_conf_nid(
        nullptr, &about, NID_authority_key_identifier, "keyid:always,issuer:always"));
    ASSERT_NE(which, nullptr);
    ASSERT_EQ(X509_CRL_add_ext(list.get(), which.get(), -1), 1);
    ASSERT_GT(X509_CRL_sign(list.get(), by_key.get(), nullptr), 0);
    write("revoked.pem", detail::to_pem(*list));
    expect_refused(errc::invalid, "is for another certificate of that authority");
    write("authority.pem", detail::to_pem(*renewed));
    EXPECT_TRUE(credentials::try_from_folder(node));
}

TEST_F(revocation_lists_test, a_list_that_comes_later_is_taken) {
    files::rename(node + "/revoked.pem", node + "/later");
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    EXPECT_FALSE(store->in_force()->has_revocation_lists());
    files::rename(node + "/later", node + "/revoked.pem");
    store->look();
    EXPECT_TRUE(store->current()->has_revocation_lists());
}
}  // namespace
}  // namespace amalgam
