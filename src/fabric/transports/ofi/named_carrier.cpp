#include "fabric/transports/ofi/named_carrier.hpp"

#include <cerrno>
#include <new>
#include <utility>

namespace amalgam::detail {
namespace {

constexpr std::size_t packets_posted = 128;  // Two windows.
constexpr std::size_t max_name_bytes = 512;

}  // namespace

ofi_named_carrier::ofi_named_carrier(introducer by, ofi_choice choice)
    : ofi_carrier(std::move(by), std::move(choice)) {
    fi_av_attr wanted{};
    wanted.type = info().domain_attr->av_type;
    fid_av* names = nullptr;
    require_ofi(fi_av_open(domain(), &wanted, &names, nullptr), "open an address vector");
    names_.reset(names);
    fid_ep* end = nullptr;
    require_ofi(fi_endpoint(domain(), const_cast<fi_info*>(&info()), &end, nullptr),
                "open an endpoint");
    end_.reset(end);
    require_ofi(fi_ep_bind(end, &names->fid, 0), "open an endpoint");
    require_ofi(fi_ep_bind(end, &completions()->fid, FI_TRANSMIT | FI_RECV), "open an endpoint");
    require_ofi(fi_enable(end), "open an endpoint");

    std::size_t bytes = max_name_bytes;
    name_.resize(bytes);
    require_ofi(fi_getname(&end->fid, name_.data(), &bytes), "get the endpoint's address");
    name_.resize(bytes);
    begin_to_receive(end, packets_posted);
}

ofi_named_carrier::~ofi_named_carrier() {
    end_packets();
    end_introductions();
    end_paths();
    names_.reset();
}

void ofi_named_carrier::end_paths() noexcept {
    end_.reset();
    take_back_all();
}

std::unique_ptr<introduced_link> ofi_named_carrier::make_link() {
    auto made = std::make_unique<ofi_named_link>();
    expect(*made);
    return made;
}

/// Whether libfabric can interpret these bytes, received from a peer, as a name.
bool ofi_named_carrier::is_name(const_bytes name) const noexcept {
    if (name.empty() || name.size() > max_name_bytes) return false;
    if (info().addr_format == FI_ADDR_STR) return name.back() == std::byte{0};
    return name.size() == name_.size();
}

status ofi_named_carrier::open_path(introduced_link& link, const_bytes name) noexcept try {
    auto& one = static_cast<ofi_named_link&>(link);
    if (!is_name(name)) return {errc::mismatch, EPROTO};
    std::string key(reinterpret_cast<const char*>(name.data()), name.size());
    other_end& other = others_[key];
    const int added =
        other.links > 0 ? 1 : fi_av_insert(names_.get(), name.data(), 1, &other.at, 0, nullptr);
    if (added != 1) {
        others_.erase(key);
        return from_ofi(added < 0 ? added : -EADDRNOTAVAIL, errc::unreachable);
    }
    ++other.links;
    one.name_ = std::move(key);
    one.to_ = other.at;
    one.by_ = end_.get();
    return {};
} catch (const std::bad_alloc&) {
    return {errc::no_memory};
}

void ofi_named_carrier::close_path(introduced_link& link, bool) noexcept {
    static_cast<ofi_named_link&>(link).closing_ = true;
}

bool ofi_named_carrier::may_destroy(ofi_link& link) noexcept {
    auto& one = static_cast<ofi_named_link&>(link);
    if (one.lent_ > 0) return false;  // libfabric may still read them.
    const auto other = others_.find(one.name_);
    if (other != others_.end() && --other->second.links == 0) {
        fi_av_remove(names_.get(), &other->second.at, 1, 0);
        others_.erase(other);
    }
    return true;
}

}  // namespace amalgam::detail
