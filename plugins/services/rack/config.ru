# A worker as a Rack application, in the manner of a Rails controller, for
# `dispatcher run --forward http://127.0.0.1:8080/jobs`: rackup -p 8080
require "json"
require "openssl"

class JobsController
  TEXT = { "content-type" => "text/plain" }.freeze

  def initialize(env)
    @env = env
    @body = env["rack.input"].read
  end

  def create
    return [401, TEXT, ["wrong signature"]] unless signed?
    body = JSON.parse(@body)
    order = body["order"] if body.is_a?(Hash)
    # Dead-lettered, with this text as the reason.
    return [422, TEXT, ['wanted {"order": NUMBER}']] unless order.is_a?(Integer)
    puts "order #{order}, attempt #{@env["HTTP_X_AWS_SQSD_RECEIVE_COUNT"]}"
    [204, {}, []]
  rescue JSON::ParserError
    [400, TEXT, ["no JSON"]]
  end

  private

  # Without a key every caller is trusted.
  def signed?
    key = ENV["SIGNING_KEY"] or return true
    time, given = @env["HTTP_X_DISPATCHER_SIGNATURE"].to_s.match(/\At=(\d+),v1=(\h{64})\z/)&.captures
    return false unless time && (Time.now.to_i - time.to_i).abs < 300
    wanted = OpenSSL::HMAC.hexdigest("SHA256", key, "#{time}.#{@body}")
    OpenSSL.fixed_length_secure_compare(given, wanted)
  end
end

$stdout.sync = true
# An exception that nobody rescues is a 500: the message is retried.
run lambda { |env|
  case [env["REQUEST_METHOD"], env["PATH_INFO"]]
  when ["POST", "/jobs"] then JobsController.new(env).create
  else [404, JobsController::TEXT, ["no such path"]]
  end
}
