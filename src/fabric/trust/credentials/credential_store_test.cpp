// Who reads files that changed, and who never waits for it.
#include "fabric/trust/credentials/credential_store.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/detail/file_stamp.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/credentials.hpp>

#include "conformance/slow_build.hpp"
#include "fabric/trust/credentials/credentials_testing.hpp"
#include "fabric/trust/credentials/silent_folder_testing.hpp"
#include "scarce_resources.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;
using detail::credential_store;

class credential_store_test : public credentials_folder {
protected:
    credential_store_test() {
        default_logger().set_sink([this](const log_record& line) { told += to_text(line) + "\n"; });
    }
    ~credential_store_test() override {
        default_logger().set_sink({});
        wait_until([] { return threads() == 0; });
    }

    auto opened() const { return credential_store::of_files(files_in(node), true).value(); }
    std::size_t times_told(std::string_view what) const {
        std::size_t times = 0;
        for (std::size_t at = 0; (at = told.find(what, at)) != told.npos; ++at)
            ++times;
        return times;
    }
    /// Those that look at files.
    static std::size_t threads() {
        std::size_t count = 0;
        for (const auto& each : files::directory_iterator("/proc/self/task"))
            count += content(each.path() / "comm") == "credentials\n" ? 1 : 0;
        return count;
    }
    template <typename Condition>
    static void wait_until(const Condition& reached) {
        while (!reached())
            std::this_thread::sleep_for(1ms);
    }
    /// Until the thread waits for the file system.
    void wait_until_stuck(credential_store& store) {
        wait_until([&] {
            (void)store.current(std::chrono::steady_clock::now() + 1h);
            return times_told("does not answer") != 0;
        });
    }

    std::string told;
};

TEST_F(credential_store_test, files_that_changed_are_read_by_a_thread_and_the_next_one_finds_them) {
    const auto store = opened();
    const auto first = store->current();
    sign_key(node, here.lab, {.days = 30, .overwrite = true});
    wait_until([&] { return store->in_force()->expires() < first->expires(); });
}

TEST_F(credential_store_test, whoever_is_the_first_to_ask_looks_at_the_files_itself) {
    const auto store = opened();
    const auto first = store->in_force();
    sign_key(node, here.lab, {.days = 30, .overwrite = true});
    const auto next = store->current(std::chrono::steady_clock::now() + 1h);
    EXPECT_LT(next->expires(), first->expires());
}

TEST_F(credential_store_test, a_file_system_that_does_not_answer_holds_up_nobody_and_is_told_once) {
    const auto store = opened();
    const auto first = store->current();
    silent_folder silent(node);
    if (!silent) GTEST_SKIP() << "this process may mount nothing";
    wait_until_stuck(*store);
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(store->current(std::chrono::steady_clock::now() + 1h), first);
    EXPECT_EQ(times_told("does not answer"), 1u) << told;
    silent.end();
    sign_key(node, here.lab, {.days = 30, .overwrite = true});
    wait_until([&] { return store->current()->expires() < first->expires(); });
}

TEST_F(credential_store_test, that_ends_does_not_wait_for_a_file_system_either) {
    auto store = opened();
    (void)store->current();
    const std::weak_ptr<const detail::loaded_credentials> first = store->in_force();
    silent_folder silent(node);
    if (!silent) GTEST_SKIP() << "this process may mount nothing";
    wait_until_stuck(*store);
    store.reset();
    EXPECT_TRUE(first.expired()) << "OpenSSL's objects do not wait for the thread";
    EXPECT_EQ(threads(), 1u) << "the thread still waits";
    silent.end();
    wait_until([] { return threads() == 0; });
}

TEST_F(credential_store_test, credentials_that_nobody_uses_or_that_are_text_have_no_thread) {
    const credential_parts at = files_in(node);
    const auto text = credential_store::of_text({.certificate = content(at.certificate),
                                                 .key = content(at.key),
                                                 .authority = content(at.authority)})
                          .value();
    EXPECT_EQ(text->current(std::chrono::steady_clock::now() + 1h), text->in_force());
    EXPECT_TRUE(text->reload());
    auto store = opened();
    EXPECT_TRUE(store->reload());
    EXPECT_EQ(threads(), 0u);
    (void)store->current();
    wait_until([] { return threads() == 1; });
    store.reset();
    wait_until([] { return threads() == 0; });
}

TEST_F(credential_store_test, what_cannot_be_used_is_told_once_per_change) {
    default_logger().set_level("trust", log_level::info);
    const auto store = opened();
    const auto first = store->in_force();
    const std::string good = content(node + "/certificate.pem");
    for (const char* half : {"half a certifi", "half a certificate"}) {
        write("certificate.pem", half);
        told.clear();
        for (int i = 0; i < 3; ++i) {
            store->look();
            EXPECT_EQ(store->current(), first);
        }
        EXPECT_EQ(times_told("cannot be used"), 1u) << told;
    }
    write("certificate.pem", good);
    for (int i = 0; i < 3; ++i) {
        store->look();
        EXPECT_NE(store->current(), first);
    }
    EXPECT_EQ(times_told("read again"), 1u) << told;
    default_logger().set_level("trust", log_level::warn);
}

TEST_F(credential_store_test, the_last_that_is_told_is_what_came_last) {
    default_logger().set_level("trust", log_level::info);
    const auto store = opened();
    const std::string good = content(node + "/certificate.pem");
    const auto told_after = [&](const std::string& first, const std::string& second) {
        told.clear();
        for (const std::string& each : {first, second}) {
            write("certificate.pem", each);
            store->look();
        }
        (void)store->current();
        return std::pair(told.find("read again"), told.find("cannot be used"));
    };
    const auto [taken, refused] = told_after(good + "\n", "half");
    EXPECT_LT(taken, refused) << told;
    EXPECT_NE(refused, told.npos) << told;
    EXPECT_EQ(told_after("half", good).second, told.npos) << told;
    default_logger().set_level("trust", log_level::warn);
}

TEST_F(credential_store_test,
       why_a_change_cannot_be_used_is_told_also_if_it_could_not_be_read_first) {
    const auto store = opened();
    write("certificate.pem", "half a certifi");
    {
        const detail::few_descriptors none(0);
        store->look();
    }
    (void)store->in_force();
    for (int i = 0; i < 3; ++i) {
        store->look();
        (void)store->current();
    }
    EXPECT_EQ(times_told("cannot be used"), 1u) << told;
    EXPECT_EQ(times_told("holds no certificate"), 1u) << told;
}

TEST_F(credential_store_test, two_contents_under_one_stamp_are_both_seen) {
    const key_fingerprint own = opened()->in_force()->self().key;
    files::remove(node + "/authority.pem");
    const std::string path = node + "/trusted.keys", line = to_text(own);
    write("trusted.keys", line);
    const auto store = credential_store::of_files({.certificate = node + "/certificate.pem",
                                                   .key = node + "/key.pem",
                                                   .trusted_list = path},
                                                  false)
                           .value();
    // What is written through a map changes the stamp at the first write only.
    const unique_fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* const map =
        ::mmap(nullptr, line.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    ASSERT_NE(map, MAP_FAILED);
    char* const first = static_cast<char*>(map);
    *first = line.front();
    store->look();
    const auto before = store->in_force();
    EXPECT_TRUE(before->trusts(own));
    const auto stamp = detail::file_stamp::of(path);
    *first = '#';
    if (detail::file_stamp::of(path) != stamp) GTEST_SKIP() << "this file system has seen it";
    store->look();
    EXPECT_FALSE(store->in_force()->trusts(own));
    const auto after = store->in_force();
    store->look();
    EXPECT_EQ(store->in_force(), after) << "read again, and the same";
    ::munmap(map, line.size());
}

TEST_F(credential_store_test, a_relative_path_means_what_it_meant_when_it_was_opened) {
    const in_folder here_first(here.path());
    const auto store = credential_store::of_files(files_in("./node"), true).value();
    const auto first = store->in_force();
    const lab_folder others;
    (void)others.add("node");
    const in_folder there(others.path());
    store->look();
    EXPECT_EQ(store->in_force(), first);
    sign_key(node, here.lab, {.days = 30, .overwrite = true});
    store->look();
    EXPECT_LT(store->in_force()->expires(), first->expires());
}

TEST_F(credential_store_test, a_relative_path_in_a_folder_that_is_gone_is_refused) {
    const std::string gone = here.with("gone");
    files::create_directory(gone);
    const in_folder there(gone);
    files::remove(gone);
    EXPECT_EQ(credential_store::of_files(files_in("../node"), true).code(), errc::not_found);
    EXPECT_TRUE(credential_store::of_files(files_in(node), true));
}

TEST_F(credential_store_test, a_child_of_fork_has_a_thread_of_its_own) {
    if (conformance::slow_build)
        GTEST_SKIP() << "a child of fork() waits for a sanitizer's own locks, too";
    auto store = opened();
    const auto first = store->current();
    const pid_t child = ::fork();
    if (child == 0) {
        const auto in_child = store->current();
        sign_key(node, here.lab, {.days = 30, .overwrite = true});
        wait_until([&] { return store->current() != in_child; });
        store.reset();
        ::_exit(0);
    }
    int code = -1;
    ASSERT_EQ(::waitpid(child, &code, 0), child);
    EXPECT_EQ(code, 0);
    wait_until([&] { return store->current() != first; });
}

TEST_F(credential_store_test, a_process_forks_and_ends_while_a_thread_reads) {
    if (conformance::slow_build)
        GTEST_SKIP() << "a child of fork() waits for a sanitizer's own locks, too";
    const auto store = opened();
    std::atomic<bool> ended{false};
    std::thread reader([&] {
        std::string certificate = content(node + "/certificate.pem");
        while (!ended) {
            certificate += "\n";
            write("certificate.pem", certificate);
            store->look();
        }
    });
    for (int i = 0; i < 20; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            (void)store->reload();  // The file may be half written.
            std::exit(0);
        }
        int code = -1;
        EXPECT_EQ(::waitpid(child, &code, 0), child);
        EXPECT_TRUE(WIFEXITED(code));
    }
    ended = true;
    reader.join();
}

TEST_F(credential_store_test, a_child_of_fork_waits_for_no_lock_that_a_thread_held) {
    if (conformance::slow_build)
        GTEST_SKIP() << "a child of fork() waits for a sanitizer's own locks, too";
    const auto store = opened();
    std::atomic<bool> ended{false};
    std::thread asks([&] {
        while (!ended)
            (void)store->in_force();
    });
    std::thread reads([&] {
        while (!ended)
            (void)store->reload();
    });
    bool good = true;
    for (int i = 0; i < 300 && good; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::alarm(30);
            (void)store->in_force();
            (void)store->reload();
            ::_exit(0);
        }
        int code = -1;
        good = ::waitpid(child, &code, 0) == child && WIFEXITED(code);
        EXPECT_TRUE(good) << "child " << i << " ended by " << code;
    }
    ended = true;
    asks.join();
    reads.join();
}

}  // namespace
}  // namespace amalgam
