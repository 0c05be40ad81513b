// Compiled with -fno-rtti, as some users' programs are.
#include "tasks/pools/untyped_testing.hpp"

namespace amalgam {
namespace {

class plain_scheduler final : public scheduler {
public:
    explicit plain_scheduler(pool& only) : only_(&only) {}
    work_unit* next() noexcept override { return only_->pop(); }
    std::span<pool* const> pools() const noexcept override { return {&only_, 1}; }

private:
    pool* const only_;
};

class empty_pool final : public pool {
public:
    empty_pool() : pool(pool_access::one_stream) {}
    ~empty_pool() override { drop_left(); }
    void push(work_unit&) noexcept override {}
    work_unit* pop() noexcept override { return nullptr; }
    bool empty() const noexcept override { return true; }
    std::size_t size() const noexcept override { return 0; }
};

}  // namespace

std::unique_ptr<scheduler> untyped_scheduler(pool& over) {
    return std::make_unique<plain_scheduler>(over);
}

std::unique_ptr<pool> untyped_pool() {
    return std::make_unique<empty_pool>();
}

}  // namespace amalgam
