// What is asked of libfabric under modes that no provider here has: a domain made of its tables.
#include "fabric/transports/ofi/memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

struct made_up_domain;

struct made_up_memory {
    fid_mr mr{};  // First.
    made_up_domain* domain = nullptr;
    bool bound = false, enabled = false, refreshed = false;
};

/// Counts, and refuses what a mode forbids.
struct made_up_domain {
    fid_domain domain{};  // First.
    fi_ops ops{}, memory_ops{};
    fi_ops_mr registers{};
    std::vector<std::uint64_t> wanted_keys, rights;
    int refuse_keys = 0;     ///< As taken.
    int refuse_writing = 0;  ///< With this error, as memory that can only be read.
    bool refuse_enabling = false;
    std::size_t live = 0, mapped = 0;
    std::size_t longest_raw = 0;  ///< Of the raw keys that were to be mapped.
    bool raw = false, by_endpoint = false;

    made_up_domain() {
        ops.size = memory_ops.size = sizeof(fi_ops);
        ops.control = &control;
        memory_ops.close = &close;
        memory_ops.bind = &bind;
        memory_ops.control = &control_memory;
        registers.size = sizeof registers;
        registers.reg = &reg;
        domain.fid.ops = &ops;
        domain.mr = &registers;
    }

    static int reg(fid* by, const void*, std::size_t, std::uint64_t access, std::uint64_t,
                   std::uint64_t key, std::uint64_t, fid_mr** made, void*) {
        auto& self = *reinterpret_cast<made_up_domain*>(by);
        self.wanted_keys.push_back(key);
        self.rights.push_back(access);
        if (self.refuse_keys > 0 && self.refuse_keys-- > 0) return -FI_ENOKEY;
        if ((access & FI_READ) != 0 && self.refuse_writing > 0) return -self.refuse_writing;
        auto* one = new made_up_memory;
        one->domain = &self;
        one->mr.fid.ops = &self.memory_ops;
        one->mr.key = self.raw ? FI_KEY_NOTAVAIL : key != 0 ? key : 4711;
        one->mr.mem_desc = one;
        ++self.live;
        *made = &one->mr;
        return 0;
    }
    static int close(fid* one) {
        auto* memory = reinterpret_cast<made_up_memory*>(one);
        --memory->domain->live;
        delete memory;
        return 0;
    }
    static int bind(fid* one, fid*, std::uint64_t) {
        reinterpret_cast<made_up_memory*>(one)->bound = true;
        return 0;
    }
    static int control_memory(fid* one, int what, void* how) {
        auto& memory = *reinterpret_cast<made_up_memory*>(one);
        if (what == FI_ENABLE) {
            if (memory.domain->refuse_enabling) return -FI_ENOMEM;
            memory.enabled = memory.bound;
            return memory.bound ? 0 : -FI_EINVAL;
        }
        if (what == FI_REFRESH) {
            memory.refreshed = true;
            return 0;
        }
        if (what != FI_GET_RAW_MR) return -FI_ENOSYS;
        auto& raw = *static_cast<struct fi_mr_raw_attr*>(how);
        if (*raw.key_size < 24) return -FI_ETOOSMALL;
        *raw.base_addr = 0x1000;
        std::memset(raw.raw_key, 7, 24);
        *raw.key_size = 24;
        return 0;
    }
    static int control(fid* by, int what, void* how) {
        auto& self = *reinterpret_cast<made_up_domain*>(by);
        if (what == FI_UNMAP_KEY) {
            --self.mapped;
            return 0;
        }
        if (what != FI_MAP_RAW_MR) return -FI_ENOSYS;
        auto& map = *static_cast<struct fi_mr_map_raw*>(how);
        self.longest_raw = std::max(self.longest_raw, map.key_size);
        if (map.key_size != 24 || map.raw_key[23] != 7) return -FI_EINVAL;
        *map.key = 99;
        ++self.mapped;
        return 0;
    }
};

class ofi_memory_test : public testing::Test {
protected:
    void open(std::uint64_t modes, std::size_t key_bytes = 8, std::size_t most = 0) {
        info_.reset(fi_allocinfo());
        info_->domain_attr->mr_mode = static_cast<int>(modes);
        info_->domain_attr->mr_key_size = key_bytes;
        info_->domain_attr->mr_cnt = most;
        memory_ = std::make_unique<ofi_memory>(&domain_.domain, *info_, false);
        memory_->bind_to(&endpoint_);
    }
    fid_mr* expose(access rights = access::read_write) {
        return memory_->expose(bytes_, rights).value();
    }
    std::size_t tell(fid_mr* one) { return memory_->tell(*one, bytes_.data(), told_).value(); }
    void TearDown() override { EXPECT_EQ(domain_.live, 0u); }

    made_up_domain domain_;
    fid_ep endpoint_{};
    ofi_info info_;
    std::unique_ptr<ofi_memory> memory_;
    std::vector<std::byte> bytes_ = std::vector<std::byte>(100);
    std::array<std::byte, one_sided_carrier::max_key_bytes> told_{};
};

TEST_F(ofi_memory_test, key_that_is_ours_to_choose_is_random_and_as_long_as_the_provider_takes) {
    open(0, 4);
    fid_mr* one = expose();
    fid_mr* other = expose();
    EXPECT_NE(domain_.wanted_keys[0], domain_.wanted_keys[1]);
    EXPECT_LE(domain_.wanted_keys[0], 0xffffffffu);
    const auto opened = memory_->open(const_bytes(told_).first(tell(one))).value();
    EXPECT_EQ(opened.key, domain_.wanted_keys[0]);
    EXPECT_EQ(opened.base, 0u) << "offsets count from the first byte";
    memory_->remove(one);
    memory_->remove(other);
}

TEST_F(ofi_memory_test, key_that_somebody_has_is_chosen_again) {
    open(0);
    domain_.refuse_keys = 3;
    memory_->remove(expose());
    EXPECT_EQ(domain_.wanted_keys.size(), 4u);
    domain_.refuse_keys = 1000;
    EXPECT_FALSE(memory_->expose(bytes_, access::read).ok());
}

TEST_F(ofi_memory_test, basic_mode_of_old_has_keys_and_addresses_of_the_provider) {
    open(FI_MR_BASIC);
    fid_mr* one = expose();
    EXPECT_EQ(domain_.wanted_keys[0], 0u);
    const auto opened = memory_->open(const_bytes(told_).first(tell(one))).value();
    EXPECT_EQ(opened.key, 4711u);
    EXPECT_EQ(opened.base, reinterpret_cast<std::uintptr_t>(bytes_.data()));
    memory_->remove(one);
}

TEST_F(ofi_memory_test, peers_get_the_rights_of_the_region_and_no_others) {
    open(0);
    for (const access rights : {access::read, access::write, access::read_write})
        memory_->remove(expose(rights));
    EXPECT_EQ(domain_.rights, (std::vector<std::uint64_t>{FI_REMOTE_READ, FI_REMOTE_WRITE,
                                                          FI_REMOTE_READ | FI_REMOTE_WRITE}));
    memory_->remove(memory_->add_local(bytes_).value());
    EXPECT_EQ(domain_.rights.back() & (FI_REMOTE_READ | FI_REMOTE_WRITE), 0u);
}

TEST_F(ofi_memory_test, memory_that_can_only_be_read_is_registered_for_puts) {
    open(FI_MR_LOCAL);
    EXPECT_TRUE(memory_->registers_local());
    for (const int refusal : {FI_EFAULT, FI_EACCES}) {
        domain_.refuse_writing = refusal;
        memory_->remove(memory_->add_local(bytes_).value());
        EXPECT_EQ(domain_.rights.back() & (FI_READ | FI_WRITE), std::uint64_t{FI_WRITE});
    }
    domain_.rights.clear();
    domain_.refuse_writing = FI_ENOMEM;
    EXPECT_EQ(memory_->add_local(bytes_).code(), errc::no_memory);
    EXPECT_EQ(domain_.rights.size(), 1u) << "not that of memory that can only be read";
}

TEST_F(ofi_memory_test, memory_that_cannot_be_enabled_is_registered_no_more_and_does_not_count) {
    open(FI_MR_ENDPOINT, 8, 1);
    domain_.refuse_enabling = true;
    for (int i = 0; i < 3; ++i)
        EXPECT_FALSE(memory_->expose(bytes_, access::read).ok());
    EXPECT_EQ(domain_.live, 0u);
    domain_.refuse_enabling = false;
    memory_->remove(expose());
}

TEST_F(ofi_memory_test, memory_of_an_endpoint_is_bound_and_enabled) {
    open(FI_MR_ENDPOINT | FI_MR_RMA_EVENT);
    fid_mr* one = expose();
    EXPECT_TRUE(reinterpret_cast<made_up_memory*>(one)->enabled);
    memory_->remove(one);
}

TEST_F(ofi_memory_test, device_is_told_of_pages_that_it_does_not_see) {
    open(FI_MR_MMU_NOTIFY);
    fid_mr* one = expose();
    EXPECT_TRUE(reinterpret_cast<made_up_memory*>(one)->refreshed);
    memory_->remove(one);
}

TEST_F(ofi_memory_test, raw_key_is_mapped_while_it_is_open) {
    open(FI_MR_RAW);
    domain_.raw = true;
    fid_mr* one = expose();
    const std::size_t bytes = tell(one);
    EXPECT_EQ(bytes, 16u + 24u);
    const auto opened = memory_->open(const_bytes(told_).first(bytes)).value();
    EXPECT_EQ(opened.key, 99u);
    EXPECT_EQ(opened.base, 0x1000u);
    EXPECT_EQ(domain_.mapped, 1u);
    memory_->close(opened);
    EXPECT_EQ(domain_.mapped, 0u);
    memory_->remove(one);
}

TEST_F(ofi_memory_test, no_more_is_registered_than_the_domain_allows) {
    open(0, 8, 2);
    fid_mr* one = expose();
    fid_mr* other = expose();
    EXPECT_EQ(memory_->expose(bytes_, access::read).code(), errc::no_memory);
    memory_->remove(one);
    memory_->remove(expose());
    memory_->remove(other);
}

TEST_F(ofi_memory_test, what_a_peer_tells_is_not_trusted) {
    open(FI_MR_RAW);
    std::array<std::byte, one_sided_carrier::max_key_bytes> any{};
    for (std::size_t bytes = 0; bytes <= any.size(); ++bytes)
        for (int form = 0; form < 4; ++form) {
            any[0] = static_cast<std::byte>(form);
            const auto opened = memory_->open(const_bytes(any).first(bytes));
            EXPECT_EQ(opened.ok(), form == 1 && bytes == 24) << form << ' ' << bytes;
        }
    std::array<std::byte, 256> longer{};
    longer[0] = std::byte{2};
    for (std::size_t bytes = any.size(); bytes <= longer.size(); ++bytes)
        EXPECT_FALSE(memory_->open(const_bytes(longer).first(bytes)).ok());
    EXPECT_EQ(domain_.longest_raw, any.size() - 16) << "more than that was copied of none";
    open(0);
    any[0] = std::byte{2};
    EXPECT_FALSE(memory_->open(any).ok()) << "raw keys, where numbers are in use";
}

}  // namespace
}  // namespace amalgam::detail
