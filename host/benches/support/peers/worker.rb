# A worker of Sidekiq: sidekiq -r ./worker.rb
require 'json'
require 'sidekiq'

$stdout.sync = true

# The handler.
class OrderJob
  include Sidekiq::Worker

  def perform(body)
    order = JSON.parse(body)
    raise '`id`: wanted a string' unless order['id'].is_a?(String)

    puts "order #{order['id']}" if order['id'] == 'wake'
  end
end
