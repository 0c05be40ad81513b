#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <amalgam/ifunc.h>

#include "inject/compiled_image.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// adds.image, in a folder that AMALGAM_IMAGE_PATH names.
void make_image() {
    const std::string source =
        "#include <stddef.h>\n#include <string.h>\n"
        "void add_to(long* sum, long what);\n"
        "size_t adds_payload_get_max_size(void* args, size_t n) { return n; }\n"
        "int adds_payload_init(void* p, size_t size, void* args, size_t n) {\n"
        "    memcpy(p, args, n);\n    return n != sizeof(long);\n}\n"
        "void adds_main(void* p, size_t n, void* target) {\n"
        "    add_to((long*)target, *(long*)p);\n}\n";
    compiled_image(source, {.path = ".c", .name = "adds"}).save(testing::TempDir() + "adds.image");
    ::setenv("AMALGAM_IMAGE_PATH", testing::TempDir().c_str(), 1);
}

extern "C" void add_to(long* sum, long what) {
    *sum += what;
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
    for (int attempts = 0; attempts < 5000 && ran < 100; ++attempts) {
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
