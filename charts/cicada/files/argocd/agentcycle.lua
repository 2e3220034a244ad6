-- Health of an AgentCycle.
local status = obj.status
if status == nil or status.phase == nil then
  return {status = "Progressing", message = "not looked at yet"}
end
if status.phase == "Succeeded" then
  return {status = "Healthy", message = status.reason or ""}
end
if status.phase == "Failed" then
  return {status = "Degraded", message = (status.reason or "") .. ": " .. (status.message or "")}
end
return {status = "Progressing", message = status.reason or status.phase}
