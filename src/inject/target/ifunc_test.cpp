#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>

#include <amalgam/ifunc.h>

#include "inject/image/compiled_image.hpp"
#include "tasks/stacks/sanitizer.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Saves it in a folder that AMALGAM_IMAGE_PATH names.
void keep(const code_image& image) {
    static const temp_folder own;
    image.save(own.with(std::string(image.name()) + ".image"));
    ::setenv("AMALGAM_IMAGE_PATH", own.path().c_str(), 1);
}

/// adds.image, which adds its payload to a sum.
void make_image() {
    const std::string source =
        "#include <stddef.h>\n#include <string.h>\n"
        "void add_to(long* sum, long what);\n"
        "size_t adds_payload_get_max_size(void* args, size_t n) { return n; }\n"
        "int adds_payload_init(void* p, size_t size, void* args, size_t n) {\n"
        "    memcpy(p, args, n);\n    return n != sizeof(long);\n}\n"
        "void adds_main(void* p, size_t n, void* target) {\n"
        "    add_to((long*)target, *(long*)p);\n}\n";
    static const code_image image = compiled_image(source, {.path = ".c", .name = "adds"});
    keep(image);
}

extern "C" void add_to(long* sum, long what) {
    *sum += what;
}

TEST(ifunc, polls_of_another_thread_than_the_one_that_opened_a_context_are_refused) {
    amalgam_ifunc_context_t* context = nullptr;
    ASSERT_EQ(amalgam_ifunc_open("shm://", &context), 0) << amalgam_ifunc_error();
    ASSERT_EQ(amalgam_ifunc_trust(context, nullptr), 0);
    std::thread([&] {
        EXPECT_EQ(amalgam_poll_ifunc(context, nullptr), AMALGAM_IFUNC_EINVALID);
        EXPECT_EQ(std::string(amalgam_ifunc_error()).rfind("this context was opened by another", 0),
                  0u)
            << amalgam_ifunc_error();
    }).join();
    EXPECT_EQ(amalgam_poll_ifunc(context, nullptr), 0) << amalgam_ifunc_error();
    amalgam_ifunc_close(context);
}

TEST(ifunc, functions_are_sent_and_run_when_they_are_polled_for) {
    make_image();
    amalgam_ifunc_context_t *source = nullptr, *target = nullptr;
    ASSERT_EQ(amalgam_ifunc_open("shm://", &source), 0) << amalgam_ifunc_error();
    ASSERT_EQ(amalgam_ifunc_open("shm://", &target), 0) << amalgam_ifunc_error();
    ASSERT_EQ(amalgam_ifunc_trust(target, nullptr), 0);
    ASSERT_EQ(amalgam_ifunc_export(target, "add_to", reinterpret_cast<void*>(&add_to)), 0);
    amalgam_ifunc_ep_t* ep = nullptr;
    ASSERT_EQ(amalgam_ifunc_ep_create(source, amalgam_ifunc_address(target), &ep), 0);
    amalgam_ifunc_t* adds = nullptr;
    ASSERT_EQ(amalgam_register_ifunc(source, "adds", &adds), 0) << amalgam_ifunc_error();

    long sum = 0, other_sum = 0;
    int ran = 0;
    for (long i = 1; i <= 100; ++i) {
        amalgam_ifunc_msg_t* message = nullptr;
        ASSERT_EQ(amalgam_ifunc_msg_create(adds, &i, sizeof(i), &message), 0);
        EXPECT_EQ(amalgam_ifunc_msg_send_nbix(ep, message), 0) << amalgam_ifunc_error();
        amalgam_ifunc_msg_free(message);
    }
    while (ran < 100) {
        EXPECT_EQ(amalgam_poll_ifunc(source, nullptr), 0);
        const int now = amalgam_poll_ifunc(target, ran < 50 ? &sum : &other_sum);
        ASSERT_GE(now, 0) << amalgam_ifunc_error();
        ran += now;
        if (now == 0) std::this_thread::sleep_for(100us);
    }
    EXPECT_EQ(ran, 100);
    EXPECT_EQ(sum + other_sum, 5050);
    EXPECT_NE(sum, 0);

    EXPECT_EQ(amalgam_ifunc_trust(target, nullptr), AMALGAM_IFUNC_EINVALID) << "it is too late";
    EXPECT_EQ(amalgam_ifunc_export(target, "x", &sum), AMALGAM_IFUNC_EINVALID);
    amalgam_ifunc_msg_t* none = nullptr;
    EXPECT_EQ(amalgam_ifunc_msg_create(adds, "x", 1, &none), AMALGAM_IFUNC_EFAILED);
    EXPECT_STREQ(amalgam_ifunc_error(), "adds_payload_init returned 1");
    amalgam_deregister_ifunc(source, adds);
    EXPECT_EQ(amalgam_register_ifunc(source, "nothing", &adds), AMALGAM_IFUNC_ENOTFOUND);
    EXPECT_NE(std::string(amalgam_ifunc_error()).find("no nothing.image in"), std::string::npos);
    amalgam_ifunc_ep_destroy(ep);
    amalgam_ifunc_close(source);
    amalgam_ifunc_close(target);
}

/// A source and a target, polled in turn.
class ifunc_pair : public testing::Test {
protected:
    void SetUp() override {
        make_image();
        ASSERT_EQ(amalgam_ifunc_open("shm://", &source), 0) << amalgam_ifunc_error();
        ASSERT_EQ(amalgam_ifunc_open("shm://", &target), 0) << amalgam_ifunc_error();
        ASSERT_EQ(amalgam_ifunc_export(target, "add_to", reinterpret_cast<void*>(&add_to)), 0);
        ASSERT_EQ(amalgam_ifunc_ep_create(source, amalgam_ifunc_address(target), &ep), 0);
        ASSERT_EQ(amalgam_register_ifunc(source, "adds", &adds), 0) << amalgam_ifunc_error();
    }
    void TearDown() override {
        if (adds != nullptr) amalgam_deregister_ifunc(source, adds);
        amalgam_ifunc_ep_destroy(ep);
        amalgam_ifunc_close(source);
        amalgam_ifunc_close(target);
    }
    amalgam_ifunc_msg_t* message(long what) {
        amalgam_ifunc_msg_t* made = nullptr;
        EXPECT_EQ(amalgam_ifunc_msg_create(adds, &what, sizeof(what), &made), 0)
            << amalgam_ifunc_error();
        return made;
    }
    void send(const amalgam_ifunc_msg_t* what) {
        EXPECT_EQ(amalgam_ifunc_msg_send_nbix(ep, what), 0) << amalgam_ifunc_error();
    }
    void send(long what) {
        amalgam_ifunc_msg_t* const one = message(what);
        send(one);
        amalgam_ifunc_msg_free(one);
    }
    /// Polls until `expected` have run, or more.
    int poll_for(int expected) {
        int ran = 0;
        while (ran < expected) {
            EXPECT_EQ(amalgam_poll_ifunc(source, nullptr), 0);
            const int now = amalgam_poll_ifunc(target, &sum);
            EXPECT_GE(now, 0) << amalgam_ifunc_error();
            if (now < 0) break;
            ran += now;
            if (now == 0) std::this_thread::sleep_for(1ms);
        }
        return ran;
    }
    /// Everything in flight arrives, and nothing runs.
    void expect_none() {
        for (int i = 0; i < 100; ++i) {
            EXPECT_EQ(amalgam_poll_ifunc(source, nullptr), 0);
            EXPECT_EQ(amalgam_poll_ifunc(target, &sum), 0);
            std::this_thread::sleep_for(1ms);
        }
        EXPECT_EQ(sum, 0);
    }

    amalgam_ifunc_context_t *source = nullptr, *target = nullptr;
    amalgam_ifunc_ep_t* ep = nullptr;
    amalgam_ifunc_t* adds = nullptr;
    long sum = 0;
};

TEST_F(ifunc_pair, a_message_may_be_changed_and_sent_again) {
    ASSERT_EQ(amalgam_ifunc_trust(target, nullptr), 0);
    amalgam_ifunc_msg_t* const one = message(1);
    for (int i = 0; i < 3; ++i)
        send(one);
    EXPECT_EQ(poll_for(3), 3);
    EXPECT_EQ(sum, 3);
    std::size_t bytes = 0;
    void* const payload = amalgam_ifunc_msg_payload(one, &bytes);
    ASSERT_EQ(bytes, sizeof(long));
    const long more = 100;
    std::memcpy(payload, &more, sizeof(more));
    send(one);
    amalgam_ifunc_msg_free(one);
    EXPECT_EQ(poll_for(1), 1);
    EXPECT_EQ(sum, 103);
}

TEST_F(ifunc_pair, descriptors_are_readable_when_something_has_come_which_a_poll_then_runs) {
    ASSERT_EQ(amalgam_ifunc_trust(target, nullptr), 0);
    pollfd ends[] = {{amalgam_ifunc_event_fd(source), POLLIN, 0},
                     {amalgam_ifunc_event_fd(target), POLLIN, 0}};
    const auto nothing_is_readable = [&] { return ::poll(ends, 2, 0) == 0; };
    const auto poll_both = [&] {
        EXPECT_EQ(amalgam_poll_ifunc(source, nullptr), 0);
        return amalgam_poll_ifunc(target, &sum);
    };
    do
        ASSERT_EQ(poll_both(), 0);
    while (!nothing_is_readable());
    for (int i = 1; i <= 3; ++i) {
        send(1);
        EXPECT_EQ(amalgam_poll_ifunc(source, nullptr), 0);  // Sends it.
        while (sum < i) {  // Polls only those whose descriptor is readable.
            ASSERT_GT(::poll(ends, 2, -1), 0);
            if (ends[0].revents != 0) {
                ASSERT_EQ(amalgam_poll_ifunc(source, nullptr), 0);
            }
            if (ends[1].revents != 0) {
                ASSERT_GE(amalgam_poll_ifunc(target, &sum), 0);
            }
        }
    }
    EXPECT_EQ(sum, 3);
}

TEST_F(ifunc_pair, nothing_runs_where_nobody_is_trusted) {
    send(1);
    expect_none();
}

TEST_F(ifunc_pair, only_what_a_trusted_signer_has_signed_runs) {
    const signing_key known = signing_key::generate();
    ASSERT_EQ(amalgam_ifunc_trust(target, to_text(signing_key::generate().signer()).c_str()), 0);
    ASSERT_EQ(amalgam_ifunc_trust(target, to_text(known.signer()).c_str()), 0);
    send(1);
    expect_none();
    amalgam_deregister_ifunc(source, std::exchange(adds, nullptr));
    keep(code_image::find("adds").signed_by(known));
    ASSERT_EQ(amalgam_register_ifunc(source, "adds", &adds), 0);
    send(1);
    EXPECT_EQ(poll_for(1), 1);
    EXPECT_EQ(sum, 1);
}

TEST_F(ifunc_pair, code_that_nobody_holds_any_more_is_not_given_to_who_asks) {
    ASSERT_EQ(amalgam_ifunc_trust(target, nullptr), 0);
    send(1);
    amalgam_deregister_ifunc(source, std::exchange(adds, nullptr));
    expect_none();
}

TEST_F(ifunc_pair, each_thread_has_a_last_error_of_its_own) {
    amalgam_ifunc_t* none = nullptr;
    EXPECT_EQ(amalgam_register_ifunc(source, "nothing", &none), AMALGAM_IFUNC_ENOTFOUND);
    const std::string mine = amalgam_ifunc_error();
    std::thread([&] {
        EXPECT_STREQ(amalgam_ifunc_error(), "");
        EXPECT_EQ(amalgam_register_ifunc(source, "other", &none), AMALGAM_IFUNC_ENOTFOUND);
    }).join();
    EXPECT_EQ(amalgam_ifunc_error(), mine);
}

TEST_F(ifunc_pair, whether_somebody_is_there_shows_when_something_is_sent) {
    std::string gone;
    {
        amalgam_ifunc_context_t* brief = nullptr;
        ASSERT_EQ(amalgam_ifunc_open("shm://", &brief), 0);
        gone = amalgam_ifunc_address(brief);
        amalgam_ifunc_close(brief);
    }
    amalgam_ifunc_ep_t* nobody = nullptr;
    ASSERT_EQ(amalgam_ifunc_ep_create(source, gone.c_str(), &nobody), 0) << amalgam_ifunc_error();
    amalgam_ifunc_msg_t* const one = message(1);
    int got = 0;
    while (got == 0) {
        got = amalgam_ifunc_msg_send_nbix(nobody, one);
        EXPECT_EQ(amalgam_poll_ifunc(source, nullptr), 0);
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(got, AMALGAM_IFUNC_EUNREACHABLE) << amalgam_ifunc_error();
    amalgam_ifunc_msg_free(one);
    amalgam_ifunc_ep_destroy(nobody);
}

TEST_F(ifunc_pair, what_a_payload_function_throws_or_cannot_have_is_a_code) {
    keep(compiled_image(
        "#include <cstddef>\n"
        "extern \"C\" std::size_t fails_payload_get_max_size(void*, std::size_t n) {"
        " return n == 0 ? ~std::size_t{0} / 4 : n; }\n"
        "extern \"C\" int fails_payload_init(void*, std::size_t, void*, std::size_t) {"
        " throw 7; }\n"
        "extern \"C\" void fails_main(void*, std::size_t, void*) {}\n",
        {.path = ".cpp", .name = "fails"}));
    amalgam_ifunc_t* fails = nullptr;
    ASSERT_EQ(amalgam_register_ifunc(source, "fails", &fails), 0) << amalgam_ifunc_error();
    amalgam_ifunc_msg_t* none = nullptr;
    EXPECT_EQ(amalgam_ifunc_msg_create(fails, "x", 1, &none), AMALGAM_IFUNC_EFAILED);
    EXPECT_NE(std::string(amalgam_ifunc_error()).find("payload_init of the image fails"),
              std::string::npos);
    if (!detail::sanitized) {  // Sanitizers end the process instead.
        EXPECT_EQ(amalgam_ifunc_msg_create(fails, nullptr, 0, &none), AMALGAM_IFUNC_ENOMEMORY);
    }
    amalgam_deregister_ifunc(source, fails);
}

TEST(ifunc, bad_calls_say_what_was_expected) {
    amalgam_ifunc_context_t* context = nullptr;
    EXPECT_EQ(amalgam_ifunc_open("nowhere", &context), AMALGAM_IFUNC_EINVALID);
    EXPECT_NE(std::string(amalgam_ifunc_error()), "");
    EXPECT_EQ(amalgam_ifunc_open(nullptr, &context), AMALGAM_IFUNC_EINVALID);
    EXPECT_EQ(amalgam_poll_ifunc(nullptr, nullptr), AMALGAM_IFUNC_EINVALID);
    ASSERT_EQ(amalgam_ifunc_open("shm://", &context), 0);
    EXPECT_EQ(amalgam_ifunc_trust(context, "not a key"), AMALGAM_IFUNC_EINVALID);
    EXPECT_EQ(amalgam_poll_ifunc(context, nullptr), 0) << "nothing runs there";
    amalgam_ifunc_close(context);
}

}  // namespace
}  // namespace amalgam
