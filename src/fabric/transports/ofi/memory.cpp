#include "fabric/transports/ofi/memory.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

enum : std::uint8_t { number_key = 1, raw_key = 2 };

constexpr int tries_for_a_key = 8;

/// The two modes of libfabric before 1.5, in the bits of today.
std::uint64_t modes_of(const fi_info& info) noexcept {
    const auto modes = static_cast<std::uint64_t>(info.domain_attr->mr_mode);
    if (modes == FI_MR_BASIC) return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    return modes == FI_MR_SCALABLE ? 0 : modes;
}

/// For devices that see only pages that exist, and are told of them.
void make_pages(mutable_bytes some) noexcept {
#ifdef MADV_POPULATE_READ
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(some.data()) & ~(page - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(some.data() + some.size());
    // Memory that may only be read has no pages to write to.
    if (::madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE) != 0)
        (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_READ);
#else
    (void)some;
#endif
}

}  // namespace

ofi_memory::ofi_memory(fid_domain* domain, const fi_info& info, bool local) noexcept
    : domain_(domain), modes_(modes_of(info)) {
    const fi_domain_attr& has = *info.domain_attr;
    if (has.mr_key_size > 0 && has.mr_key_size < sizeof key_mask_)
        key_mask_ = (std::uint64_t{1} << (8 * has.mr_key_size)) - 1;
    most_ = has.mr_cnt;
    local_ = local || asks_for(FI_MR_LOCAL);
}

ofi_memory::~ofi_memory() {
    assert(count_ == 0);
}

int ofi_memory::make_ready(fid_mr& one, mutable_bytes some) noexcept {
    if (asks_for(FI_MR_ENDPOINT)) {
        int how = fi_mr_bind(&one, &end_->fid, 0);
        if (how == 0) how = fi_mr_enable(&one);
        if (how != 0) return how;
    }
    if (!asks_for(FI_MR_MMU_NOTIFY)) return 0;
    make_pages(some);
    const iovec all{some.data(), some.size()};
    return fi_mr_refresh(&one, &all, 1, 0);
}

int ofi_memory::register_once(mutable_bytes some, std::uint64_t rights, fid_mr*& made) noexcept {
    const std::uint64_t wanted = asks_for(FI_MR_PROV_KEY) ? 0 : random_u64() & key_mask_;
    const int how =
        fi_mr_reg(domain_, some.data(), some.size(), rights, 0, wanted, 0, &made, nullptr);
    if (how != 0) return how;
    const int ready = make_ready(*made, some);
    if (ready != 0) fi_close(&made->fid);
    return ready;
}

result<fid_mr*> ofi_memory::add(mutable_bytes some, std::uint64_t rights) noexcept {
    if (most_ != 0 && count_ >= most_) return {errc::no_memory, "the domain's limit is reached"};
    fid_mr* made = nullptr;
    int how = -FI_ENOKEY;
    // Somebody may have the same key already.
    for (int i = 0; i < tries_for_a_key && how == -FI_ENOKEY; ++i)
        how = register_once(some, rights, made);
    if (how != 0) return failure{from_ofi(how, errc::unsupported), {}};
    ++count_;
    return made;
}

result<fid_mr*> ofi_memory::add_local(mutable_bytes some) noexcept {
    result<fid_mr*> made = add(some, FI_SEND | FI_RECV | FI_READ | FI_WRITE);
    if (made || (made.why().what.native != FI_EFAULT && made.why().what.native != FI_EACCES))
        return made;
    return add(some, FI_SEND | FI_WRITE);  // It may be memory that can only be read.
}

result<fid_mr*> ofi_memory::expose(mutable_bytes some, access rights) noexcept {
    std::uint64_t remote = 0;
    if (allows(rights, access::read)) remote |= FI_REMOTE_READ;
    if (allows(rights, access::write)) remote |= FI_REMOTE_WRITE;
    return add(some, remote);
}

void ofi_memory::remove(fid_mr* one) noexcept {
    --count_;
    if (const int how = fi_close(&one->fid); how != 0)
        log(log_level::error, "ofi", "a registration of memory could not be closed",
            {{"reason", fi_strerror(-how)}});
}

// ---- keys

result<std::size_t> ofi_memory::tell(
    fid_mr& one, const std::byte* first,
    std::span<std::byte, one_sided_carrier::max_key_bytes> told) const noexcept {
    std::fill_n(told.data(), head_bytes, std::byte{0});
    std::uint64_t base = asks_for(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(first) : 0;
    const std::uint64_t key = fi_mr_key(&one);
    std::size_t bytes = sizeof key;
    if (asks_for(FI_MR_RAW) || key == FI_KEY_NOTAVAIL) {
        std::uint8_t raw[one_sided_carrier::max_key_bytes - head_bytes];
        bytes = sizeof raw;
        std::uint64_t raw_base = base;
        const int how = fi_mr_raw_attr(&one, &raw_base, raw, &bytes, 0);
        if (how != 0) return failure{from_ofi(how, errc::unsupported), {}};
        base = raw_base;
        told[0] = std::byte{raw_key};
        std::memcpy(told.data() + head_bytes, raw, bytes);
    } else {
        told[0] = std::byte{number_key};
        store_le(told.data() + head_bytes, key);
    }
    store_le(told.data() + 8, base);
    return head_bytes + bytes;
}

result<ofi_far_key> ofi_memory::open(const_bytes told) noexcept {
    if (told.size() <= head_bytes) return {errc::invalid, ""};
    ofi_far_key made;
    made.base = load_le<std::uint64_t>(told.data() + 8);
    const const_bytes key = told.subspan(head_bytes);
    if (told[0] == std::byte{number_key} && key.size() == sizeof made.key) {
        made.key = load_le<std::uint64_t>(key.data());
        return made;
    }
    std::uint8_t raw[one_sided_carrier::max_key_bytes - head_bytes];
    if (told[0] != std::byte{raw_key} || !asks_for(FI_MR_RAW) || key.size() > sizeof raw)
        return {errc::invalid, ""};
    std::memcpy(raw, key.data(), key.size());
    const int how = fi_mr_map_raw(domain_, made.base, raw, key.size(), &made.key, 0);
    if (how != 0) return failure{from_ofi(how, errc::unsupported), {}};
    made.is_mapped = true;
    return made;
}

void ofi_memory::close(const ofi_far_key& one) noexcept {
    if (one.is_mapped) fi_mr_unmap_key(domain_, one.key);
}

}  // namespace amalgam::detail
