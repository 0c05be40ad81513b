#pragma once

#include <cstddef>
#include <cstdio>
#include <vector>

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// While one lives, this process may map so many bytes more.
class little_memory {
public:
    explicit little_memory(std::size_t spare) {
        ::getrlimit(RLIMIT_AS, &before_);
        unsigned long pages = 0;
        if (std::FILE* const all = std::fopen("/proc/self/statm", "r")) {
            if (std::fscanf(all, "%lu", &pages) != 1) pages = 0;
            std::fclose(all);
        }
        rlimit little = before_;
        little.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + spare;
        ::setrlimit(RLIMIT_AS, &little);
    }
    ~little_memory() { ::setrlimit(RLIMIT_AS, &before_); }
    little_memory(const little_memory&) = delete;

private:
    rlimit before_{};
};

/// While one lives, this process may open so many descriptors more.
class few_descriptors {
public:
    explicit few_descriptors(std::size_t spare) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit few = before_;
        few.rlim_cur = 256;
        ::setrlimit(RLIMIT_NOFILE, &few);
        for (int one = 0; (one = ::eventfd(0, EFD_CLOEXEC)) >= 0;)
            held_.emplace_back(one);
        held_.resize(held_.size() - spare);
    }
    ~few_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    few_descriptors(const few_descriptors&) = delete;

private:
    rlimit before_{};
    std::vector<unique_fd> held_;
};

}  // namespace amalgam::detail
