#include <new>
#include <utility>

#include <fmt/format.h>

#include "fabric/transports/loop/loop.hpp"
#include "fabric/transports/loop/port.hpp"

namespace amalgam::detail {
namespace {

class loop_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "loop"; }

    transport_info describe() const override {
        transport_info info;
        info.name = "loop";
        info.usable = true;
        info.summary = "ports within this process, one thread each";
        info.details = {"rma: carried as messages",
                        "virtual time and fault injection: amalgam::loop_network"};
        info.example = "loop://server";
        return info;
    }

    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        if (!where.options.empty())
            return {
                errc::invalid,
                fmt::format("uri \"{}\": unknown option \"{}\": loop has none; example: loop://{}",
                            to_string(where), where.options.front().key, where.name)};
        std::shared_ptr<loop_mailbox> box = hub_->open(where.name);
        if (box == nullptr)
            return {errc::in_use,
                    fmt::format("uri \"{0}\": the name \"{1}\" is in use by another port of this "
                                "process; choose another; example: loop://{1}-2",
                                to_string(where), where.name)};
        try {
            box->open_handle();
            return std::unique_ptr<port>(std::make_unique<loop_port>(hub_, box, options, 0, false));
        } catch (const error& why) {
            hub_->close(*box);
            return failure{why.code(), why.what()};
        } catch (...) {
            hub_->close(*box);
            throw;
        }
    }

private:
    std::shared_ptr<loop_hub> hub_ = std::make_shared<loop_hub>(loop_options{});
};

}  // namespace

std::unique_ptr<transport> make_loop_transport() {
    return std::make_unique<loop_transport>();
}

}  // namespace amalgam::detail
