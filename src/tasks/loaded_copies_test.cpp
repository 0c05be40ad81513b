// Shared objects containing the library are loaded, used and unloaded by a program that does not
// contain it.

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <thread>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct copy {
    explicit copy(const char* path) : handle(::dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        if (handle == nullptr) ADD_FAILURE() << ::dlerror();
    }
    ~copy() {
        if (handle != nullptr) ::dlclose(handle);
    }
    int run() {
        void* const what = handle == nullptr ? nullptr : ::dlsym(handle, "run_copy");
        return what == nullptr ? -1 : reinterpret_cast<int (*)()>(what)();
    }
    void* handle;
};

std::size_t tls_bytes(void* handle) {
    link_map* of = nullptr;
    if (handle == nullptr || ::dlinfo(handle, RTLD_DI_LINKMAP, &of) != 0) return SIZE_MAX;
    struct wanted {
        std::uintptr_t base;
        std::size_t bytes;
    } found{of->l_addr, 0};
    ::dl_iterate_phdr(
        [](dl_phdr_info* each, std::size_t, void* data) {
            auto& what = *static_cast<wanted*>(data);
            if (each->dlpi_addr != what.base) return 0;
            for (int i = 0; i < each->dlpi_phnum; ++i) {
                if (each->dlpi_phdr[i].p_type == PT_TLS) what.bytes = each->dlpi_phdr[i].p_memsz;
            }
            return 1;
        },
        &found);
    return found.bytes;
}

// All of it, as soon as any is initial-exec; all shared objects together have about 1,600 bytes.
TEST(loaded_copy, takes_at_most_72_bytes_of_static_thread_local_storage) {
    copy one(FIRST_COPY);
    EXPECT_GT(tls_bytes(one.handle), 0u);
    EXPECT_LE(tls_bytes(one.handle), 72u);
}

TEST(loaded_copy, works_beside_another) {
    copy one(FIRST_COPY), other(SECOND_COPY);
    EXPECT_EQ(one.run(), 42);
    EXPECT_EQ(other.run(), 42);
    std::thread elsewhere([&] {
        EXPECT_EQ(other.run(), 42);
        EXPECT_EQ(one.run(), 42);
    });
    elsewhere.join();
}

// Its signal handlers and its thread still exist.
TEST(loaded_copy, stays_when_it_was_used_and_unloaded) {
    const pid_t child = ::fork();
    if (child == 0) {
        {
            copy one(FIRST_COPY);
            if (one.run() != 42) ::_exit(2);
            void* const print = ::dlsym(one.handle, "print_on_signal");
            reinterpret_cast<void (*)(int)>(print)(SIGUSR1);
        }
        if (::dlopen(FIRST_COPY, RTLD_NOW | RTLD_NOLOAD) == nullptr) ::_exit(3);
        ::raise(SIGUSR1);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
