#include "fabric/transports/shm/memory/mapping.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/transports/shm/memory/layout.hpp"

namespace amalgam::detail {
namespace {

TEST(shm_mapping, both_views_of_a_mirrored_mapping_are_the_same_bytes) {
    const unique_fd fd = make_shm_memory(3 * shm_page_bytes).value();
    const shm_mapping ring = shm_mapping::mirrored(fd.get(), shm_page_bytes, 2 * shm_page_bytes);
    ASSERT_TRUE(ring);
    ring.data()[5] = std::byte{7};
    EXPECT_EQ(ring.data()[2 * shm_page_bytes + 5], std::byte{7});
    ring.data()[4 * shm_page_bytes - 1] = std::byte{9};
    EXPECT_EQ(ring.data()[2 * shm_page_bytes - 1], std::byte{9});
    const shm_mapping all = shm_mapping::of(fd.get(), 0, 3 * shm_page_bytes, false);
    EXPECT_EQ(all.data()[shm_page_bytes + 5], std::byte{7});
}

TEST(shm_mapping, memory_can_neither_shrink_nor_grow) {
    const unique_fd fd = make_shm_memory(2 * shm_page_bytes).value();
    for (off_t size : {off_t{0}, off_t{shm_page_bytes}, off_t{3 * shm_page_bytes}}) {
        EXPECT_NE(::ftruncate(fd.get(), size), 0);
        EXPECT_EQ(errno, EPERM);
    }
}

TEST(shm_mapping, memory_without_new_writers_stays_writable_to_its_first) {
    const unique_fd fd = make_shm_memory(shm_page_bytes).value();
    const shm_mapping first = shm_mapping::of(fd.get(), 0, shm_page_bytes, true);
    ASSERT_TRUE(forbid_new_writers(fd.get()));
    EXPECT_FALSE(shm_mapping::of(fd.get(), 0, shm_page_bytes, true));
    const shm_mapping reader = shm_mapping::of(fd.get(), 0, shm_page_bytes, false);
    ASSERT_TRUE(reader);
    first.data()[0] = std::byte{3};
    EXPECT_EQ(reader.data()[0], std::byte{3});
    EXPECT_LT(::write(fd.get(), "x", 1), 0);
}

TEST(shm_mapping, pages_are_taken_or_refused_without_a_fault) {
    const unique_fd fd = make_shm_memory(4 * shm_page_bytes).value();
    ASSERT_TRUE(take_shm_pages(fd.get(), shm_page_bytes, 2 * shm_page_bytes));
    struct stat facts {};
    ASSERT_EQ(::fstat(fd.get(), &facts), 0);
    EXPECT_EQ(facts.st_blocks * 512, 2 * static_cast<long>(shm_page_bytes));
    EXPECT_EQ(facts.st_size, 4 * static_cast<long>(shm_page_bytes));
    EXPECT_TRUE(reserve_shm_pages(fd.get(), 0, 4 * shm_page_bytes));
    EXPECT_FALSE(take_shm_pages(-1, 0, shm_page_bytes));
}

TEST(shm_mapping, limit_of_file_sizes_is_no_memory_and_no_signal) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit little{2 * shm_page_bytes, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
    const auto fits = make_shm_memory(2 * shm_page_bytes);
    const auto refused = make_shm_memory(2 * shm_page_bytes + 1);
    sigset_t pending, blocked;
    ::sigpending(&pending);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_TRUE(fits);
    EXPECT_EQ(refused.code(), errc::no_memory);
    EXPECT_EQ(refused.code().native, EFBIG);
    EXPECT_NE(refused.sentence().find("ulimit -f"), std::string::npos) << refused.sentence();
    EXPECT_EQ(::sigismember(&pending, SIGXFSZ), 0);
    EXPECT_EQ(::sigismember(&blocked, SIGXFSZ), 0);
}

TEST(shm_mapping, only_sealed_memory_of_the_right_size_is_accepted) {
    const unique_fd good = make_shm_memory(2 * shm_page_bytes).value();
    EXPECT_TRUE(is_shm_memory(good.get(), 2 * shm_page_bytes));
    EXPECT_FALSE(is_shm_memory(good.get(), shm_page_bytes));
    EXPECT_FALSE(is_shm_memory(good.get(), 3 * shm_page_bytes));
    EXPECT_FALSE(is_shm_memory(-1, 2 * shm_page_bytes));

    const unique_fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(unsealed.get(), 2 * shm_page_bytes), 0);
    EXPECT_FALSE(is_shm_memory(unsealed.get(), 2 * shm_page_bytes))
        << "its owner could make it smaller";

    std::string path = testing::TempDir() + "amalgam-shm-XXXXXX";
    const unique_fd file(::mkstemp(path.data()));
    ASSERT_TRUE(file);
    ::unlink(path.c_str());
    ASSERT_EQ(::ftruncate(file.get(), 2 * shm_page_bytes), 0);
    EXPECT_FALSE(is_shm_memory(file.get(), 2 * shm_page_bytes)) << "a file is no memory";

    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const unique_fd reading(ends[0]), writing(ends[1]);
    EXPECT_FALSE(is_shm_memory(reading.get(), 2 * shm_page_bytes));
}

}  // namespace
}  // namespace amalgam::detail
