#include <amalgam/rpc/engine.hpp>

// Here, not in the headers: the vectors and strings of options would cost every user's build more
// than all else an engine needs.
namespace amalgam {

endpoints::endpoints(const char* one) : uris{one} {}
endpoints::endpoints(std::string_view one) : uris{std::string(one)} {}
endpoints::endpoints(const std::string& one) : uris{one} {}
endpoints::endpoints(std::initializer_list<const char*> several)
    : uris(several.begin(), several.end()) {}
endpoints::endpoints(std::vector<std::string> several) : uris(std::move(several)) {}
endpoints::endpoints(std::unique_ptr<port> one) {
    ports.push_back(std::move(one));
}
endpoints::endpoints(std::vector<std::unique_ptr<port>> several) : ports(std::move(several)) {}
endpoints::endpoints(endpoints&&) noexcept = default;
endpoints& endpoints::operator=(endpoints&&) noexcept = default;
endpoints::~endpoints() = default;

stream_set::stream_set(unsigned count) : each(count == 0 ? 1 : count) {}
stream_set::stream_set(std::initializer_list<stream_options> all) : each(all) {}
stream_set::stream_set(std::vector<stream_options> all) : each(std::move(all)) {}

}  // namespace amalgam
